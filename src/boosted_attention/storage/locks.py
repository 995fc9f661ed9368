"""Locks between commands that meet on one folder. The operating system releases those of a process that dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from boosted_attention.storage.writing import make_folder, remove_made
from boosted_attention.validation import InputError

try:
    import fcntl
except ImportError:  # Windows: readers and writers of checkpoints take turns by chance there
    fcntl = None

LOCK, OWNER = ".lock", ".owner"  # of a folder that one command writes to
ENTRIES = ".entries"  # lock of a folder whose entries come and go


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a folder for this process while it writes there.

    Args:
        folder: a run, or results of a reproduction; it is made if it does not exist.
    """
    name = f"folder={str(folder)!r}"
    try:
        made = make_folder(folder.resolve())
    except OSError as error:
        raise InputError(f"{name} cannot be made: {error.strerror}") from None
    owner = folder / OWNER
    with ExitStack() as held:
        try:
            held.enter_context(FileLock(folder / LOCK, timeout=0))
            owner.write_text(f"{os.getpid()}\n")
            held.callback(owner.unlink, missing_ok=True)
        except Timeout:
            who = owner.read_text().strip() if owner.exists() else "unknown"
            raise InputError(f"{name} is in use by another process ({who}); wait for it or give another") from None
        except OSError as error:
            remove_made(made)
            raise InputError(f"{name} cannot be written to: {error.strerror or error}") from None
        yield  # outside of the try: what fails while the folder is held is not the folder's fault


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Keep readers out of a folder for a moment, while entries of it are renamed or removed.

    Args:
        folder: the folder, which must exist.
    """
    with ExitStack() as held:
        if fcntl is not None:
            descriptor = os.open(folder / ENTRIES, os.O_RDWR | os.O_CREAT, 0o666)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Keep entries of a folder from being renamed or removed while they are read; nothing is written for that.

    Args:
        folder: the folder; one without the lock's file has no writer.
    """
    with ExitStack() as held:
        if fcntl is not None:
            with suppress(OSError):
                descriptor = os.open(folder / ENTRIES, os.O_RDONLY)
                held.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
