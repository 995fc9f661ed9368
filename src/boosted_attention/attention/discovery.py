"""Finding the learners of the package: each file of ``attention/learners`` registers what it defines.

The registries, ``catalog.py`` and ``learner.py``, call this when they are asked, and the files that it imports enter
themselves there: a cycle, which waits until the modules are whole.
"""


def discover() -> None:
    """Import every learner of the package; repeated calls do nothing."""
    import boosted_attention.attention.learners  # noqa: F401
