"""Seals: a JSON document that carries its own sha256, and lists size and sha256 of the files it stands for.

    {"files": {"model.safetensors": {"bytes": 1234, "sha256": "..."}}, ..., "sha256": "..."}

The sealed document of a folder is written last, so that a folder with one is whole, and a change to it or to any file
it lists is found when it is opened. A seal tells damage from content; it does not tell who wrote it: somebody who
changes a file and seals the folder again is believed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boosted_attention.records import to_json
from boosted_attention.storage.documents import DamagedError, read_json, typed
from boosted_attention.storage.writing import write_json

SEAL = "sha256"  # key of a document's own checksum
FILES = "files"  # key of what it lists
PIECE = 2**20  # bytes hashed at a time


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """What a sealed document says of a file."""

    bytes: int
    sha256: str


Listing = dict[str, FileEntry]  # by the name of the file in the folder


def seal_of(document: Mapping[str, Any]) -> str:
    """Return the sha256 of a document's content, its own checksum left out.

    Args:
        document: JSON values.
    """
    rest = {key: value for key, value in document.items() if key != SEAL}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, allow_nan=False).encode()).hexdigest()


def sealed(document: Mapping[str, Any], files: Listing | None = None) -> dict[str, Any]:
    """Return a document with its seal.

    Args:
        document: JSON values.
        files: the files of its folder that it stands for.
    """
    whole = {**document, **({} if files is None else {FILES: to_json(files)})}
    return {**whole, SEAL: seal_of(whole)}


def write_sealed(path: Path, document: Mapping[str, Any], files: Listing | None = None) -> None:
    """Write a document with its seal, whole or not at all.

    Args:
        path: where to.
        document: JSON values.
        files: the files of its folder that it stands for.
    """
    write_json(path, sealed(document, files))


def read_sealed(path: Path) -> dict[str, Any]:
    """Return a document whose seal is right.

    Args:
        path: the file.

    Raises:
        DamagedError: it is missing or damaged, has no seal, or was changed after it was sealed.
    """
    document = read_json(path)
    if not isinstance(document, dict):
        raise DamagedError(f"{path} is damaged: it holds no object")
    if SEAL not in document:
        raise DamagedError(f"{path} has no seal: it is damaged, or of a version before 0.2")
    try:
        own = seal_of(document)
    except ValueError:  # a number beyond all bounds, such as 1e999
        own = None
    if document[SEAL] != own:
        raise DamagedError(f"{path} is not what was written: its content does not match its seal")
    return document


def entry_of(path: Path) -> FileEntry:
    """Return size and sha256 of a file, which is read once."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            size += len(piece)
    return FileEntry(bytes=size, sha256=digest.hexdigest())


def listing(folder: Path, names: Iterable[str]) -> Listing:
    """Return what a sealed document says of files of its folder."""
    return {name: entry_of(folder / name) for name in sorted(names)}


def files_of(document: Mapping[str, Any], path: Path) -> Listing:
    """Return the files that a sealed document lists: plain names in its own folder.

    Args:
        document: what ``read_sealed`` returned.
        path: where it was read, for the message.
    """
    files = typed(Listing, document.get(FILES), path)
    outside = [name for name in files if name in ("", ".", "..") or Path(name).name != name]
    if outside:
        raise DamagedError(f"{path} is damaged: it lists {outside[0]!r}, which is no file of its folder")
    return files


def verify(folder: Path, files: Listing, names: Collection[str] | None = None) -> None:
    """Raise DamagedError unless files of a folder are what was sealed.

    Args:
        folder: the folder.
        files: what its sealed document lists.
        names: the files to look at; all by default.
    """
    for name in files if names is None else names:
        path = folder / name
        if name not in files:
            raise DamagedError(f"{path} is not among the files that were sealed; remove it or put the folder back")
        try:
            if not path.is_file():
                raise DamagedError(f"{path} is missing")
            if path.stat().st_size != files[name].bytes:
                raise DamagedError(f"{path} is damaged: it has {path.stat().st_size:,} of {files[name].bytes:,} bytes")
            if entry_of(path) != files[name]:
                raise DamagedError(f"{path} is damaged: its content is not what was sealed")
        except OSError as error:
            raise DamagedError(f"{path} cannot be read: {error.strerror or error}") from None
