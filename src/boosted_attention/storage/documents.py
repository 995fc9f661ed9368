"""JSON files that others may have changed: read under a bound, and refused in one line that names the file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from boosted_attention.records import from_json
from boosted_attention.validation import InputError

LARGEST = 2**28  # bytes of a document; the largest of ours, an analysis with its explorer, has some 2**24
T = TypeVar("T")


class DamagedError(InputError):
    """A file is not what was written there; the message names it."""


def is_there(path: Path) -> bool:
    """Say whether there is anything under a name, be it a link that leads nowhere."""
    return os.path.lexists(path)


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a regular file of bounded size.

    Args:
        path: the file.
        largest: number of bytes it may have.

    Raises:
        DamagedError: it is missing, no regular file, too large, or cannot be read.
    """
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise DamagedError(f"{path} is {'a folder' if path.is_dir() else 'no regular file'}; a file is expected")
        if about.st_size > largest:
            raise DamagedError(f"{path} has {about.st_size:,} bytes; such a file has at most {largest:,}")
        with path.open("rb") as file:
            content = file.read(largest + 1)
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing") from None
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > largest:
        raise DamagedError(f"{path} grew beyond {largest:,} bytes while it was read")
    return content


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """Return what a JSON file holds.

    Args:
        path: the file.
        largest: number of bytes it may have.

    Raises:
        DamagedError: there is no such file, or it is not JSON; NaN and Infinity are not.
    """
    return parsed(read_bytes(path, largest), str(path))


def read_document(kind: type[T], path: Path, largest: int = LARGEST) -> T:
    """Return what a JSON file holds as a typed value.

    Args:
        kind: a dataclass, or a type that ``from_json`` knows.
        path: the file.
        largest: number of bytes it may have.

    Raises:
        DamagedError: there is no such file, or its content does not have the type.
    """
    return typed(kind, read_json(path, largest), path)


def typed(kind: type[T], value: Any, path: Path) -> T:
    """Turn parsed JSON into a typed value; DamagedError, which names the file, where it does not have the type."""
    try:
        return from_json(kind, value)
    except ValueError as error:
        raise DamagedError(f"{path} is damaged: {error}") from None


def parsed(content: bytes | str, name: str) -> Any:
    """Parse JSON; DamagedError for what is none, nests too deeply, or holds numbers that are not finite.

    Args:
        content: the text.
        name: what the message calls it.
    """
    try:
        return json.loads(content, parse_constant=refuse_constant)
    except RecursionError:
        reason = "it nests too deeply"
    except json.JSONDecodeError as error:
        reason = f"{error.msg}, line {error.lineno}"
    except ValueError as error:  # bytes that are no text, numbers with thousands of digits, NaN
        reason = str(error).splitlines()[0]
    raise DamagedError(f"{name} is not JSON: {reason}")


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
