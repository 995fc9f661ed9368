"""``boosted-attention results``: the results that ship, as tables."""

from __future__ import annotations

from pathlib import Path


def run(folder: Path = Path("results"), /, *, readme: Path | None = None) -> int:
    """Show the results of a checkout's results/ folder, or write them into its README.

    Example: boosted-attention results --readme README.md

    Args:
        folder: folder of results, each made by ``reproduce --out``.
        readme: page to write them into, between its marks, instead of printing them.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    from boosted_attention.files import write_atomically
    from boosted_attention.lab.shipped import into, shipped
    from boosted_attention.validation import require

    block = shipped(folder)
    if readme is None:
        Console().print(Markdown(block))
        return 0
    require(readme.is_file(), f"--readme {readme} is not a file")
    write_atomically(readme, into(readme.read_text(encoding="utf-8"), block, str(readme)))
    print(f"written: {readme}")
    return 0
