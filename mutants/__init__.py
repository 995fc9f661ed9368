"""Planted bugs: does a test notice when the code that judges is wrong?

    python -m mutants              run every planted bug against the test that should notice it
    python -m mutants --find       look in the mirrored folder of tests for one that notices, and note it
    python -m mutants --draw 60    draw candidates from the source, with a fixed seed, and print them

``planted.json`` holds the bugs: those that once went unnoticed, and thirty that were drawn before any test was written
for them, from the source of commit 852fb0a. A draw from other source gives other bugs.
"""
