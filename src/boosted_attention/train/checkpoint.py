"""Checkpoints: safetensors and JSON, whole or absent, and no pickle anywhere.

    RUN/checkpoints/step-00000200/   model.safetensors   optimizer.safetensors   state.json
    RUN/checkpoints/best-00000150/   model.safetensors   state.json

What is larger than SHARD_BYTES is divided, as transformers divides it: model-00001-of-00003.safetensors and so on, with
model.safetensors.index.json to say which tensor is where. Tensors of a model that is spread over processes are put
together one at a time; the process that writes holds those of one file. The files do not show how it was spread.
``state.json`` is sealed and lists the other files; what it does not list is not read. A checkpoint is written beside
its place, flushed to the disk, renamed and read back.

The two newest step checkpoints stay, so that one damaged file never costs the run, and with them every best checkpoint
that one of them names. Neither read nor removed are entries with other names than the two above, nor whole checkpoints
of another step than their name says, such as copies.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from boosted_attention.storage.documents import DamagedError
from boosted_attention.storage.locks import changing
from boosted_attention.storage.sealing import FileEntry, Listing, entry_of, files_of, read_sealed, sealed, verify
from boosted_attention.storage.writing import flush
from boosted_attention.validation import InputError

KEPT = 2  # step checkpoints
SHARD_BYTES = 2 * 2**30  # of a file
PLACE = re.compile(r"(step|best)-(\d{8})")
STATE = "state.json"
UNFINISHED = re.compile(r"\.(step|best)-\d{8}\.\d+")

TensorGroups = Mapping[str, Mapping[str, Tensor]]  # "model" and "optimizer", each with tensors by name


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are whole."""

    folder: Path
    state: dict[str, Any]
    files: Listing

    @property
    def step(self) -> int:
        return self.state["step"]

    @property
    def best_step(self) -> int | None:
        """Step of the run's best checkpoint when this one was written; None before the first evaluation."""
        best = self.state.get("best")
        return None if best is None else best.get("step")

    def tensors(self, name: str) -> CheckpointTensors:
        """Open the tensors of the model ("model") or the optimizer ("optimizer")."""
        part = re.compile(rf"{name}(-\d{{5}}-of-\d{{5}})?\.safetensors")
        return CheckpointTensors([self.folder / file for file in sorted(self.files) if part.fullmatch(file)])


class CheckpointTensors(Mapping[str, Tensor]):
    """Tensors by name, each read from its file when it is asked for."""

    def __init__(self, paths: Sequence[Path]):
        self.files: dict[str, Any] = {}
        for path in paths:
            try:
                file = safe_open(path, framework="pt")
                self.files |= dict.fromkeys(file.keys(), file)
            except (SafetensorError, OSError) as error:
                raise InputError(f"{path} is not a safetensors file ({error}); pickles are never loaded") from None

    def __getitem__(self, name: str) -> Tensor:
        return self.files[name].get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


# Finding checkpoints


def place(parent: Path, kind: str, step: int) -> Path:
    """Return the folder of a checkpoint."""
    return parent / f"{kind}-{step:08d}"


def steps_of(parent: Path, kind: str) -> list[int]:
    """Return the steps of the checkpoints of a kind, ascending; entries with any other name are left out."""
    if not parent.is_dir():
        return []
    found = ((PLACE.fullmatch(path.name), path) for path in parent.iterdir())
    return sorted(int(match[2]) for match, path in found if match and match[1] == kind and path.is_dir())


def read_state(folder: Path) -> dict[str, Any]:
    """Return what the state.json of a checkpoint holds; DamagedError if it is missing or damaged."""
    path = folder / STATE
    state = read_sealed(path)
    if not isinstance(state.get("step"), int) or not isinstance(state.get("best"), dict | None):
        raise DamagedError(f"{path} is damaged: it has no step, or no best evaluation")
    return state


def open_checkpoint(folder: Path) -> Checkpoint:
    """Open a checkpoint; DamagedError says which of its files is missing or damaged."""
    state = read_state(folder)
    if is_foreign(folder, state):
        raise DamagedError(f"{folder} holds a checkpoint of step {state['step']}; its name must say so")
    files = files_of(state, folder / STATE)
    verify(folder, files)
    return Checkpoint(folder, state, files)


def is_foreign(folder: Path, state: Mapping[str, Any]) -> bool:
    """Say whether a checkpoint is of another step or kind than its folder's name says, as a copy is."""
    return place(folder.parent, state.get("kind", folder.name.partition("-")[0]), state["step"]) != folder


def opened(folder: Path) -> tuple[Checkpoint | None, str | None]:
    """Open a checkpoint, or say what is wrong with it."""
    try:
        return open_checkpoint(folder), None
    except DamagedError as problem:
        return None, str(problem)


def latest(parent: Path, kind: str) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest whole checkpoint of a kind, and what is wrong with newer ones."""
    problems = []
    for step in reversed(own_steps(parent, kind)):
        found, problem = opened(place(parent, kind, step))
        if found is not None:
            return found, problems
        problems.append(problem or "")
    return None, problems


# Writing checkpoints


def save(
    parent: Path,
    kind: str,
    step: int,
    tensors: TensorGroups,
    state: dict[str, Any],
    *,
    whole: Callable[[Tensor], Tensor] = lambda t: t,
    write: bool = True,
) -> None:
    """Write the checkpoint ``kind``-``step``, and remove older ones once it is verified.

    Every process of a parallel run calls this, since all are needed to put a divided tensor together.

    Args:
        parent: folder of all checkpoints.
        kind: "step" or "best".
        step: updates done.
        tensors: a group of named tensors for each safetensors file.
        state: what state.json holds beside the checksums; "best" names the run's best evaluation.
        whole: puts a divided tensor together.
        write: whether this process writes.
    """
    final = place(parent, kind, step)
    temporary = parent / f".{final.name}.{os.getpid()}"
    files, failure = write_tensors(temporary, tensors, whole, write)
    if not write:
        return
    try:
        if failure is not None:
            raise failure
        files |= write_indices(temporary, tensors)
        whole_state = sealed({**state, "kind": kind, "step": step}, files)
        (temporary / STATE).write_text(json.dumps(whole_state, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        publish(temporary, final)
    except (OSError, SafetensorError) as error:
        needed = sum(size(t) for group in tensors.values() for t in group.values())
        message = full_disk(error, final, needed, kind)
        shutil.rmtree(temporary, ignore_errors=True)
        raise InputError(message) from None
    _, problem = opened(final)
    if problem is not None:
        raise InputError(f"{problem}, right after it was written; the checkpoint before it is kept")
    remove_older(parent, step)


def write_tensors(
    folder: Path, tensors: TensorGroups, whole: Callable[[Tensor], Tensor], write: bool
) -> tuple[Listing, Exception | None]:
    """Write the tensors file by file; return size and sha256 of each file, and what went wrong if something did.

    A process that does not write, or whose writing has failed, still goes through all tensors: the others wait for it.
    """
    files: Listing = {}
    failure: Exception | None = None
    for name, group in tensors.items():
        for file, keys in shards(name, group).items():
            held = {}
            for key in keys:
                t = whole(group[key].detach())  # on every process, for a moment
                if write and failure is None:
                    held[key] = t.contiguous().cpu()
            if not write or failure is not None:
                continue
            try:
                if not files:
                    shutil.rmtree(folder, ignore_errors=True)
                    folder.mkdir(parents=True)
                save_file(held, folder / file)
                files[file] = flushed(folder / file)
            except (OSError, SafetensorError) as error:
                failure = error
    return files, failure


def write_indices(folder: Path, tensors: TensorGroups) -> Listing:
    """Write the index of every group that is divided over several files; return size and sha256 of each index."""
    files: Listing = {}
    for name, group in tensors.items():
        parts = shards(name, group)
        if len(parts) > 1:
            where = {key: file for file, keys in parts.items() for key in keys}
            about = {"metadata": {"total_size": sum(map(size, group.values()))}, "weight_map": where}
            path = folder / f"{name}.safetensors.index.json"
            path.write_text(json.dumps(about, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            files[path.name] = flushed(path)
    return files


def publish(temporary: Path, final: Path) -> None:
    """Move a finished checkpoint to its place, in an order that survives a power cut."""
    flush(temporary / STATE)
    flush(temporary)
    with changing(final.parents[1]):
        if final.exists():
            shutil.rmtree(final)  # of an earlier attempt at this step
        temporary.rename(final)
    flush(final.parent)


def remove_older(parent: Path, step: int) -> None:
    """Keep the newest step checkpoints up to ``step``, the newest best one, and those that a kept one names."""
    steps, bests = ([n for n in own_steps(parent, kind) if n <= step] for kind in ("step", "best"))
    named = {best_named_by(place(parent, "step", n)) for n in steps[-KEPT:]} | set(bests[-1:])
    superseded = [place(parent, "step", n) for n in steps[:-KEPT]]
    superseded += [place(parent, "best", n) for n in bests if n not in named]
    remove(parent, superseded)


def remove(parent: Path, folders: Sequence[Path]) -> None:
    """Remove checkpoints while nobody reads."""
    if folders:
        with changing(parent.parent):
            for folder in folders:
                shutil.rmtree(folder)


def own_steps(parent: Path, kind: str) -> list[int]:
    """Return the steps of a kind's checkpoints, without those that only have the name of one, such as copies."""
    return [n for n in steps_of(parent, kind) if not is_copy(place(parent, kind, n))]


def is_copy(folder: Path) -> bool:
    """Say whether a folder holds the state of another checkpoint than its name says; a damaged one does not."""
    try:
        return is_foreign(folder, read_state(folder))
    except DamagedError:
        return False


def best_named_by(folder: Path) -> int | None:
    """Return the step of the best checkpoint that a step checkpoint names; None if it cannot be read."""
    try:
        return Checkpoint(folder, read_state(folder), {}).best_step
    except DamagedError:
        return None


def clear(parent: Path, step: int) -> None:
    """Remove what a dead process left half-written, and checkpoints beyond ``step``, where the run goes on from."""
    unfinished = [path for path in parent.glob(".*") if UNFINISHED.fullmatch(path.name)]
    beyond = [place(parent, kind, n) for kind in ("step", "best") for n in own_steps(parent, kind) if n > step]
    remove(parent, [*unfinished, *beyond])


def size(t: Tensor) -> int:
    return t.numel() * t.element_size()


def shards(name: str, group: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """Say which tensors go into which file: one, or as many as SHARD_BYTES asks for."""
    parts: list[list[str]] = [[]]
    filled = 0
    for key, t in group.items():
        if parts[-1] and filled + size(t) > SHARD_BYTES:
            parts.append([])
            filled = 0
        parts[-1].append(key)
        filled += size(t)
    if len(parts) == 1:
        return {f"{name}.safetensors": parts[0]}
    return {f"{name}-{i + 1:05d}-of-{len(parts):05d}.safetensors": keys for i, keys in enumerate(parts)}


def full_disk(error: Exception, final: Path, needed: int, kind: str) -> str:
    """Explain why a checkpoint was not written."""
    previous = steps_of(final.parent, kind)
    kept = f"{place(final.parent, kind, previous[-1]).name} is kept" if previous else "there is none before it"
    free = shutil.disk_usage(final.parent).free if final.parent.exists() else 0
    numbers = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
    full = getattr(error, "errno", None) in numbers or any(f"os error {n}" in str(error) for n in numbers)
    what = "the disk is full" if full else str(error)  # safetensors writes the number into its message
    return f"checkpoint {final} was not written: {what}; it needs {needed} bytes and {free} were left; {kept}"


def flushed(path: Path) -> FileEntry:
    """Flush a file to the disk and return its size and sha256."""
    flush(path)
    return entry_of(path)
