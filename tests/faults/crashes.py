"""Crash points: the power fails between any two operations on files, and what was not flushed is lost."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from boosted_attention.storage import writing
from boosted_attention.train import checkpoint
from tests.faults.hunt import Hunt
from tests.faults.workshop import Workshop

STEPS = (4, 8, 12, 16)


@dataclass(frozen=True)
class Operation:
    """What was done to the disk: write, sync, mkdir, rename or remove."""

    kind: str
    path: Path
    to: Path | None = None
    content: bytes = b""


@contextmanager
def recorded(root: Path) -> Iterator[list[Operation]]:
    """Record every operation of checkpoints on files, in order; paths are relative to ``root``."""
    done: list[Operation] = []

    def note(kind: str, path: Path, to: Path | None = None, content: bytes = b"") -> None:
        done.append(Operation(kind, Path(path).relative_to(root), to and Path(to).relative_to(root), content))

    def wrapped(original: Any, after: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            result = original(*args, **options)
            after(*args, **options)
            return result

        return call

    def wrote(path: Path, *args: Any, **options: Any) -> None:
        note("write", path, content=Path(path).read_bytes())

    patches = [
        mock.patch.object(
            checkpoint, "save_file", wrapped(checkpoint.save_file, lambda tensors, path, **options: wrote(path))
        ),
        mock.patch.object(Path, "write_text", wrapped(Path.write_text, wrote)),
        mock.patch.object(Path, "mkdir", wrapped(Path.mkdir, lambda path, *args, **options: note("mkdir", path))),
        mock.patch.object(Path, "rename", wrapped(Path.rename, lambda path, to: note("rename", path, to))),
        mock.patch.object(shutil, "rmtree", wrapped(shutil.rmtree, lambda path, **options: note("remove", path))),
        mock.patch.object(writing, "flush", wrapped(writing.flush, lambda path: note("sync", path))),
        mock.patch.object(checkpoint, "flush", wrapped(checkpoint.flush, lambda path: note("sync", path))),
    ]
    with ExitStack() as held:
        for patch in patches:
            held.enter_context(patch)
        yield done


def replay(operations: list[Operation], root: Path, *, keep_names: bool) -> None:
    """Build what a disk holds after a power cut.

    Content that was not flushed is lost: its file is empty. Names that were not flushed may have arrived or not.

    Args:
        operations: what was done before the cut.
        root: an empty folder.
        keep_names: whether renames and new files arrived although their folder was not flushed.
    """
    synced: dict[Path, bytes] = {}  # content that the disk has
    written: dict[Path, bytes] = {}  # content that the system has
    folders: set[Path] = set()
    pending: list[Operation] = []  # changes of names since the last flush of their folder
    names: set[Path] = set()  # files that the disk knows

    def moved(table: dict[Path, bytes], a: Path, b: Path) -> None:
        for path in [p for p in table if p == a or a in p.parents]:
            table[b / path.relative_to(a)] = table.pop(path)

    for operation in operations:
        path = operation.path
        if operation.kind == "write":
            written[path] = operation.content
            pending.append(operation)
        elif operation.kind == "mkdir":
            folders.add(path)
        elif operation.kind == "sync":
            if path in written:
                synced[path] = written[path]
            else:
                pending = [change for change in pending if change.path.parent != path]
                names |= {p for p in written if p.parent == path}
        elif operation.kind == "rename" and operation.to is not None:
            if not keep_names:
                pending.append(operation)
            for table in (synced, written):
                moved(table, path, operation.to)
            names = {operation.to / p.relative_to(path) if path in p.parents else p for p in names}
        elif operation.kind == "remove":
            for table in (synced, written):
                for gone in [p for p in table if p == path or path in p.parents]:
                    del table[gone]
    undone = [change for change in pending if change.kind == "rename"] if not keep_names else []
    for path in written:
        place = path
        for change in reversed(undone):
            if change.to is not None and (change.to in place.parents or change.to == place):
                place = change.path / place.relative_to(change.to)
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(synced.get(path, b""))


def save(parent: Path, kind: str, step: int) -> None:
    """Write a checkpoint whose weights say which step it is of."""
    tensors = {"model": {"w": torch.full((7,), float(step))}}
    if kind == "step":
        tensors["optimizer"] = {"m": torch.full((7,), float(step))}
    checkpoint.save(parent, kind, step, tensors, {"best": {"step": step}, "config": {}})


@cache
def history(workshop: Workshop) -> tuple[list[Operation], list[int]]:
    """All operations of several saves, and how many there were after each."""
    root = workshop.root / "crashes"
    shutil.rmtree(root, ignore_errors=True)
    parent = root / "run" / "checkpoints"
    parent.mkdir(parents=True)
    ends = []
    with recorded(root) as operations:
        for step in STEPS:
            for kind in ("best", "step"):
                save(parent, kind, step)
            ends.append(len(operations))
    return operations, ends


def points(workshop: Workshop) -> int:
    """The number of crash points: before each operation, with and without names that were not flushed."""
    return 2 * (len(history(workshop)[0]) + 1)


def crash(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Cut the power at one point, chosen by the number of the attempt, and look for the last checkpoint."""
    operations, ends = history(workshop)
    number = int(place.name) % points(workshop)
    point, keep_names = number // 2, bool(number % 2)
    replay(operations[:point], place / "disk", keep_names=keep_names)
    finished = [step for step, end in zip(STEPS, ends, strict=True) if end <= point]
    parent = place / "disk" / "run" / "checkpoints"
    found, _ = checkpoint.latest(parent, "step")
    what = f"after operation {point} of {len(operations)}, names {'kept' if keep_names else 'lost'}"
    if found is None:
        return f"{what}: nothing to go on from, although step {finished[-1]} was saved" if finished else None
    if finished and found.step < finished[-1]:
        return f"{what}: step {finished[-1]} was saved, and {found.step} is the last one"
    right = all(float(t[0]) == found.step for name in ("model", "optimizer") for t in found.tensors(name).values())
    return None if right else f"{what}: the weights are not those of step {found.step}"


HUNTS = (
    Hunt(
        name="crash points",
        promise="After a power cut between any two operations on files, with everything lost that was not flushed, "
        "the last checkpoint whose saving had ended is there and whole.",
        attempts=400,
        attempt=crash,
    ),
)
