"""Files that appear whole or not at all, and their checksums."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boosted_attention.validation import InputError, require


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is the old one or the new one, never a part of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path: Path, data: Any) -> None:
    """Write JSON that is the same for the same data."""
    write_atomically(path, json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n")


def free_name(path: Path) -> Path:
    """The first of NAME.old-1, NAME.old-2, ... that is not taken, before the file's ending."""
    number = 1
    while (free := path.with_name(f"{path.stem}.old-{number}{path.suffix}")).exists():
        number += 1
    return free


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_folder(out: Path, files: Sequence[str], folders: Sequence[str] = (), option: str = "out") -> None:
    """Raise InputError unless these files and folders can be written under ``out``.

    Args:
        out: the folder; it need not exist.
        files: names of files to be written there.
        folders: names of folders to be made there.
        option: what the caller's argument is called, for the message.
    """
    given = f"{option}={str(out)!r}"
    require(not out.exists() or out.is_dir(), f"{given} is a file; give a folder")
    for name in files:
        require(not (out / name).is_dir(), f"{given}: {name} is a folder there; give another folder or remove it")
    for name in folders:
        require(
            not (out / name).exists() or (out / name).is_dir(),
            f"{given}: {name} is a file there; give another folder or remove it",
        )
    made = [path for path in (out, *out.parents) if not path.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"{given} cannot be written to: {error.strerror}") from None
    finally:
        for path in made:  # remove folders this check created
            if path.is_dir():
                path.rmdir()
