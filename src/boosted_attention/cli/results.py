"""``boosted-attention results``: the results that ship, as tables."""

from __future__ import annotations

from pathlib import Path


def run(folder: Path = Path("results"), /, *, page: Path | None = None) -> int:
    """Show the results of a checkout's results/ folder, or write them into a page.

    Example: boosted-attention results --page docs/results.md

    Args:
        folder: folder of results, each made by ``reproduce --out``.
        page: page to write them into, between its marks, instead of printing them.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    from boosted_attention.files import write_atomically
    from boosted_attention.lab.shipped import into, shipped
    from boosted_attention.validation import require

    block = shipped(folder)
    if page is None:
        Console().print(Markdown(block))
        return 0
    require(page.is_file(), f"page={str(page)!r} is not a file")
    write_atomically(page, into(page.read_text(encoding="utf-8"), block, str(page)))
    print(f"written: {page}")
    return 0
