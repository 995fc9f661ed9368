"""A release: the two files that are published, built from a commit and tried before anybody else gets them.

    python -m release            build wheel and source archive, compare them with the commit, try the wheel: dist/
    python -m release --clean    the same, with every dependency installed anew under constraints.txt

Building asks the package index for ``build`` and hatchling.
"""
