"""Damage that no seal covers up: every kind of file, in every way, and as many clean loads beside it."""

from __future__ import annotations

import json
import random
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from boosted_attention.validation import InputError
from tests.faults.hunt import Hunt
from tests.faults.workshop import KINDS, Workshop, files_of

VALUES: list[Any] = [None, True, -1, 0, 2**70, 1e308, "", "x", "\u0000", [], {}, [[]], {"a": 1}, [1, 2, 3], -0.5]


def flip(draw: random.Random, path: Path, folder: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 1, 8))):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def cut(draw: random.Random, path: Path, folder: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.choice((0, 1, len(content) // 2, len(content) - 1))])


def lengthen(draw: random.Random, path: Path, folder: Path) -> None:
    path.write_bytes(path.read_bytes() + draw.choice((b"\0", b"}", b"\n{}", path.read_bytes())))


def blank(draw: random.Random, path: Path, folder: Path) -> None:
    """Zero a stretch, as a lost block of a disk is."""
    content = bytearray(path.read_bytes())
    start = draw.randrange(len(content))
    end = min(len(content), start + 512)
    content[start:end] = bytes(end - start)
    path.write_bytes(content)


def swap(draw: random.Random, path: Path, folder: Path) -> None:
    other = draw.choice(files_of(folder))
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def remove(draw: random.Random, path: Path, folder: Path) -> None:
    path.unlink()


def make_folder(draw: random.Random, path: Path, folder: Path) -> None:
    path.unlink()
    path.mkdir()


def retype(draw: random.Random, path: Path, folder: Path) -> None:
    """Change one value inside valid JSON; a file that is none is flipped."""
    try:
        document = json.loads(path.read_text())
    except ValueError:
        return flip(draw, path, folder)
    path.write_text(json.dumps(changed(draw, document)))
    return None


def unfinite(draw: random.Random, path: Path, folder: Path) -> None:
    """Write NaN or an infinite number for one of a file of JSON; another file is flipped."""
    try:
        document = json.loads(path.read_text())
    except ValueError:
        return flip(draw, path, folder)
    harmed = changed(draw, document, ["@"])
    path.write_text(json.dumps(harmed).replace('"@"', draw.choice(("NaN", "Infinity", "-Infinity", "1e999"))))
    return None


HARMS = (flip, flip, flip, cut, lengthen, blank, swap, remove, make_folder, retype, unfinite)


def changed(draw: random.Random, document: Any, values: list[Any] = VALUES) -> Any:
    """Return JSON with one value, at any depth, replaced, removed or added."""
    if isinstance(document, dict) and document and draw.random() < 0.9:
        key = draw.choice(list(document))
        if draw.random() < 0.1:
            return {k: v for k, v in document.items() if k != key}
        return {**document, key: changed(draw, document[key], values)}
    if isinstance(document, list) and document and draw.random() < 0.9:
        at = draw.randrange(len(document))
        return [*document[:at], changed(draw, document[at], values), *document[at + 1 :]]
    return draw.choice(values)


@cache
def truth(kind: str, workshop: Workshop) -> Any:
    """What the whole thing says."""
    return KINDS[kind].look(KINDS[kind].folder(workshop), workshop)


def damage(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Damage one file of a copy and look at it: the same numbers, or one line that refuses."""
    name = draw.choice(list(KINDS))
    kind = KINDS[name]
    folder = shutil.copytree(kind.folder(workshop), place / name)
    path, harm = draw.choice(files_of(folder)), draw.choice(HARMS)
    if path.stat().st_size == 0:
        return None
    harm(draw, path, folder)
    what = f"{name}, {path.relative_to(folder)}, {harm.__name__}"
    try:
        found = kind.look(folder, workshop)
    except InputError as refused:
        if kind.rebuilt:
            return f"{what}: not built anew: {refused}"
        return f"{what}: more than one line: {refused}" if "\n" in str(refused) else None
    return None if found == truth(name, workshop) else f"{what}: other numbers"


def load_clean(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Look at a whole copy: no alarm, and the same numbers."""
    name = draw.choice(list(KINDS))
    folder = shutil.copytree(KINDS[name].folder(workshop), place / name)
    return None if KINDS[name].look(folder, workshop) == truth(name, workshop) else f"{name}: other numbers"


HUNTS = (
    Hunt(
        name="corruptions",
        promise="A damaged file gives the same numbers, because it is rebuilt or plays no part, or one line that "
        "names it; never other numbers.",
        attempts=2000,
        attempt=damage,
    ),
    Hunt(name="clean loads", promise="What is whole is never refused.", attempts=2000, attempt=load_clean),
)
