"""Finding the learners of the package: each file of ``attention/learners`` registers what it defines."""

import importlib


def discover() -> None:
    """Import every learner of the package; repeated calls do nothing."""
    importlib.import_module("boosted_attention.attention.learners")
