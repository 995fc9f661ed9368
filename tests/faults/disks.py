"""Disks that are full, broken or only read: at any operation of a command that writes."""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import safetensors.torch

from boosted_attention.cli.main import main
from tests.faults.hunt import Hunt
from tests.faults.workshop import Workshop

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)
WRITES = set("wax+")


class Failing:
    """Lets operations on files below a folder fail from a chosen one on.

    Args:
        root: the folder; other files, such as those of Python itself, are left alone.
        at: number of the first operation that fails; 0 lets none fail.
        number: errno of the failure.
    """

    def __init__(self, root: Path, at: int, number: int):
        self.root, self.at, self.number, self.count = str(root), at, number, 0

    def concerns(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and str(os.fspath(path)).startswith(self.root)

    def maybe_fail(self, path: Any) -> None:
        self.count += 1
        if self.at and self.count >= self.at:
            raise OSError(self.number, os.strerror(self.number), str(path))

    def opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if self.concerns(path) and WRITES & set(mode):
                self.maybe_fail(path)
            return original(path, mode, *args, **options)

        return opened

    def naming(self, original: Callable[..., Any], place: int = 0) -> Callable[..., Any]:
        def named(*args: Any, **options: Any) -> Any:
            if self.concerns(args[place]):
                self.maybe_fail(args[place])
            return original(*args, **options)

        return named

    def flushing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def flushed(descriptor: int) -> Any:
            self.maybe_fail(None)
            return original(descriptor)

        return flushed


@contextmanager
def failing(root: Path, at: int, number: int) -> Iterator[Failing]:
    """Let every operation that writes below a folder fail, from the ``at``-th on."""
    state = Failing(root, at, number)
    with ExitStack() as held:
        for owner, name, wrap in (
            (builtins, "open", state.opening),
            (io, "open", state.opening),
            (os, "fsync", state.flushing),
            (os, "mkdir", state.naming),
            (os, "rename", state.naming),
            (os, "replace", state.naming),
            (safetensors.torch, "serialize_file", lambda original: state.naming(original, 1)),
        ):
            held.enter_context(mock.patch.object(owner, name, wrap(getattr(owner, name))))
        yield state


def commands(workshop: Workshop, place: Path) -> dict[str, list[Any]]:
    """Commands that write, each into a folder of its own."""
    run = place / "run"
    return {
        "boost": ["boost", workshop.base, place / "out"],
        "export": ["export", run, place / "out"],
        "analyze": ["analyze", run, "--sequences", 2, "--pairs", 4, "--out", place / "out"],
        "report": ["report", place / "results"],
    }


def call(args: list[Any]) -> tuple[Any, str]:
    """Run a command; return its exit code and what it said on its second output."""
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            main([str(arg) for arg in args])
        except SystemExit as stop:
            return stop.code, err.getvalue()


def content(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder but locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.name not in (".lock", ".owner", ".entries")
    }


def prepare_place(workshop: Workshop, place: Path) -> None:
    """Put there what the commands read."""
    shutil.copytree(workshop.run, place / "run")
    shutil.copytree(workshop.results, place / "results")


@cache
def operations(name: str, workshop: Workshop) -> int:
    """The number of operations of a command that nothing disturbs."""
    place = workshop.root / f"operations-{name}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    prepare_place(workshop, place)
    with failing(place, 0, 0) as state:
        code, said = call(commands(workshop, place)[name])
    assert code == 0, said
    return state.count


def break_disk(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Let a command fail at one of its operations: one line, and its folder as it was."""
    prepare_place(workshop, place)
    name, number = draw.choice(sorted(commands(workshop, place))), draw.choice(ERRORS)
    at = draw.randint(1, operations(name, workshop))
    before = content(place)
    with failing(place, at, number):
        code, said = call(commands(workshop, place)[name])
    what = f"{name}, {errno.errorcode[number]} from operation {at} on"
    lines = [line for line in said.splitlines() if line.startswith("boosted-attention: ")]
    if code == 0:
        return f"{what}: exit code 0"
    if code != 2 or len(lines) != 1 or "Traceback" in said:
        return f"{what}: exit code {code}, {said[-300:]!r}"
    after = content(place)
    left = {path for path in after if path not in before or after[path] != before[path]}
    if left:  # moving what is ready is one operation per file: a part may have arrived, each file whole
        torn = [path for path in left if Path(path).name.startswith(".")]
        part = name in ("boost", "export") and at < operations(name, workshop)  # the last one flushes what is whole
        return f"{what}: left {sorted(left)[:3]}" if torn or part else None
    return None


HUNTS = (
    Hunt(
        name="broken disks",
        promise="A disk that is full, broken or only read gives one line; folders that did not exist do not exist "
        "afterwards, and no half of a file is left.",
        attempts=200,
        attempt=break_disk,
    ),
)
