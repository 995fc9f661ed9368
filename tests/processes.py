"""Processes that tests start."""

import os
from pathlib import Path

import boosted_attention

SOURCE = Path(boosted_attention.__file__).parents[1]  # the package that is tested, wherever it lies
ROOT = Path(__file__).parents[1]


def environment(**more: str) -> dict[str, str]:
    """This environment for a process that imports the same package, and modules of the tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(ROOT)]), "OMP_NUM_THREADS": "1", **more}
