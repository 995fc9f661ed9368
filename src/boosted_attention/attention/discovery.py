"""Finding the learners of the package: each file of ``attention/learners`` registers what it defines.

The registries, ``catalog.py`` and ``learner.py``, call this when they are asked, and the files that it imports enter
themselves there: a cycle, which waits until the modules are whole.
"""

import functools
import re
from pathlib import Path

LEARNERS = "boosted_attention.attention.learners"


def discover() -> None:
    """Import every learner of the package; repeated calls do nothing."""
    import boosted_attention.attention.learners  # noqa: F401


@functools.cache
def layer_classes() -> dict[str, str]:
    """Return the layer classes of the learners' files, ``class NameAttention(...)``, each with its module.

    The files are read and not imported, so that packages can offer the names without waiting for torch.
    """
    return {
        name: f"{LEARNERS}.{file.stem}"
        for file in sorted(Path(__file__).with_name("learners").glob("*.py"))
        for name in re.findall(r"^class (\w+Attention)\(", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
