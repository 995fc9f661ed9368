"""Files that appear whole or not at all, and their checksums."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, text: str) -> None:
    """The file is the old one or the new one, never a part of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path: Path, data: Any) -> None:
    """As JSON that is the same for the same data."""
    write_atomically(path, json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n")


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
