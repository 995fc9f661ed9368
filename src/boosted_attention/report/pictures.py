"""Pictures of the results that ship, as files beside the page that shows all results."""

from __future__ import annotations

from pathlib import Path

from boosted_attention.lab.pages import shows_all
from boosted_attention.lab.shipped import PICTURES, pictures
from boosted_attention.report.standalone import standalone
from boosted_attention.storage.writing import write_atomically


def drawn(page: Path, results: Path) -> dict[Path, str]:
    """Return the text of every picture that a page needs, by its file; none unless the page shows all results.

    Args:
        page: a page of Markdown.
        results: the folder of results that ship.
    """
    if not shows_all(page.read_text(encoding="utf-8")):
        return {}
    return {page.parent / PICTURES / name: standalone(figure) for name, figure in pictures(results).items()}


def write_pictures(page: Path, results: Path) -> list[Path]:
    """Write the pictures of a page and return their files.

    Args:
        page: a page of Markdown.
        results: the folder of results that ship.
    """
    files = drawn(page, results)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    return list(files)


def picture_problems(page: Path, results: Path) -> list[str]:
    """Name every picture of a page that is missing or is not what the results say.

    Args:
        page: a page of Markdown.
        results: the folder of results that ship.
    """
    found = []
    for path, text in drawn(page, results).items():
        if not path.is_file():
            found.append(f"{path} is missing: a picture of the results")
        elif path.read_text(encoding="utf-8") != text:
            found.append(f"{path} is not the picture that the results give")
    return found
