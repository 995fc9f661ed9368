"""``boosted-attention results``: the results that ship, as tables and as numbers in prose."""

from __future__ import annotations

from pathlib import Path


def run(folder: Path = Path("results"), /, *, page: Path | None = None, check: tuple[Path, ...] = ()) -> int:
    """Show the results of a checkout's results/ folder, write them into a page, or check the numbers of pages.

    A page with all results has its pictures in a folder "results" beside it, which are written and checked with it.
    Numbers in sentences that name their quantity are written anew too; the sentences are not.

    Example: boosted-attention results --page docs/results.md

    Example: boosted-attention results --check README.md docs/results.md

    Args:
        folder: folder of results, each made by ``reproduce --out``.
        page: page to write them into, between its marks and at its references, instead of printing them.
        check: pages whose numbers are recomputed; exit code 1 if one is not what the results say.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    from boosted_attention.lab.pages import fill, problems
    from boosted_attention.lab.shipped import shipped
    from boosted_attention.report.pictures import picture_problems, write_pictures
    from boosted_attention.storage.writing import write_atomically
    from boosted_attention.validation import require

    require(page is None or not check, "page= writes and check= compares: give one of them")
    for path in (*check, *([] if page is None else [page])):
        require(path.is_file(), f"{str(path)!r} is not a file")
    if check:
        found = [said for path in check for said in problems(path.read_text(encoding="utf-8"), folder, str(path))]
        found += [said for path in check for said in picture_problems(path, folder)]
        print("\n".join(found) or "every number is what the results say")
        return 1 if found else 0
    if page is None:
        Console().print(Markdown(shipped(folder)))
        return 0
    write_atomically(page, fill(page.read_text(encoding="utf-8"), folder, str(page)))
    for written in (page, *write_pictures(page, folder)):
        print(f"written: {written}")
    return 0
