"""Files and folders that appear whole or not at all, whatever goes wrong, and leave nothing behind if it does."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from boosted_attention.validation import InputError, require


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is the old one or the new one, never a part of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    flush(path.parent)


def write_json(path: Path, data: Any) -> None:
    """Write JSON that is the same for the same data."""
    write_atomically(path, json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n")


@contextmanager
def staged_folder(final: Path, *, replace: bool = False) -> Iterator[Path]:
    """Give a folder to be filled beside ``final``, and move it there when it is whole.

    If anything fails nothing of it is left: neither the folder, nor those above that had to be made for it.

    Args:
        final: where the folder is to be; an empty one may be there.
        replace: whether a folder with content may be there too; it is removed once the new one is whole.
    """
    final = final.resolve()
    temporary = final.with_name(f".{final.name}.{os.getpid()}")
    made = make_folder(final.parent)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        flush_tree(temporary)
        if replace and final.exists():
            shutil.rmtree(final)
        temporary.rename(final)  # onto nothing, or onto an empty folder
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        remove_made(made)
        raise
    flush(final.parent)


@contextmanager
def staged_files(folder: Path) -> Iterator[Path]:
    """Give a folder to be filled, and move its files into ``folder``, over older ones, when all are written.

    If anything fails while they are written, ``folder`` is as it was.

    Args:
        folder: where the files are to be; other files there stay.
    """
    folder = folder.resolve()
    made = make_folder(folder)
    temporary = folder / f".staged.{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        flush_tree(temporary)
        files = (p for p in temporary.rglob("*") if p.is_file())
        for path in sorted(files, key=lambda p: (p.suffix == ".json", p)):  # what is sealed before its seal
            place = folder / path.relative_to(temporary)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
        shutil.rmtree(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        remove_made(made)
        raise
    flush(folder)


@contextmanager
def writing_to(out: Path, option: str = "out") -> Iterator[None]:
    """Turn the failure to write a folder, as on a full disk, into an InputError of one line.

    Args:
        out: the folder.
        option: what the caller's argument is called, for the message.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # whoever reads our output has gone
    except Exception as error:
        if not is_of_the_system(error):
            raise
        told = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{option}={str(out)!r} was not written: {told}") from None


def is_of_the_system(error: Exception) -> bool:
    """Say whether an error comes from the operating system; safetensors writes its number into a message of its own."""
    return isinstance(error, OSError) or (type(error).__name__ == "SafetensorError" and "os error" in str(error))


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and those above it; return the ones that were not there, the outermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    made = []
    for path in reversed(missing):
        with suppress(FileExistsError):  # another process was quicker
            path.mkdir()
            made.append(path)
    return made


def remove_made(made: Sequence[Path]) -> None:
    """Remove folders that ``make_folder`` made, as far as they are still empty."""
    for path in reversed(made):
        with suppress(OSError):
            path.rmdir()


def free_name(path: Path) -> Path:
    """Return the first of NAME.old-1, NAME.old-2, ... that is not taken, before the file's ending."""
    number = 1
    while (free := path.with_name(f"{path.stem}.old-{number}{path.suffix}")).exists():
        number += 1
    return free


def flush(path: Path) -> None:
    """Have the disk keep a file, or the entries of a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_tree(folder: Path) -> None:
    """Have the disk keep a folder with everything in it."""
    for path in (*folder.rglob("*"), folder):
        flush(path)


def require_empty_folder(out: Path, option: str = "out") -> None:
    """Raise InputError unless a new folder can be made at ``out``, where an empty one may be.

    Args:
        out: the folder.
        option: what the caller's argument is called, for the message.
    """
    empty = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    require(empty, f"{option}={str(out)!r} is not an empty folder; give another")
    require_folder(out, (), option=option)


def require_folder(out: Path, files: Sequence[str], folders: Sequence[str] = (), option: str = "out") -> None:
    """Raise InputError unless these files and folders can be written under ``out``; nothing is left of the trial.

    Args:
        out: the folder; it need not exist.
        files: names of files to be written there.
        folders: names of folders to be made there.
        option: what the caller's argument is called, for the message.
    """
    given = f"{option}={str(out)!r}"
    try:
        out = out.resolve()
        require(not out.exists() or out.is_dir(), f"{given} is a file; give a folder")
        for name in files:
            require(not (out / name).is_dir(), f"{given}: {name} is a folder there; give another folder or remove it")
        for name in folders:
            require(
                not (out / name).exists() or (out / name).is_dir(),
                f"{given}: {name} is a file there; give another folder or remove it",
            )
        made = make_folder(out)
        try:
            probe = out / f".writable.{os.getpid()}"
            probe.touch()
            probe.unlink()
        finally:
            remove_made(made)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
        raise InputError(f"{given} cannot be written to: {getattr(error, 'strerror', None) or error}") from None
