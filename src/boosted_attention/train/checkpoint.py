"""Checkpoints: safetensors and JSON, whole or absent, and no pickle anywhere.

    RUN/checkpoints/step-00000200/   model.safetensors   optimizer.safetensors   state.json
    RUN/checkpoints/best-00000150/   model.safetensors   state.json

What is larger than SHARD_BYTES is divided, as transformers divides it: model-00001-of-00003.safetensors and so on, with
model.safetensors.index.json to say which tensor is where. Tensors of a model that is spread over processes are put
together one at a time; the process that writes holds those of one file. The files do not show how it was spread.
``state.json`` holds the sha256 of the other files and of itself. A checkpoint is written beside its place, flushed to
the disk, renamed and read back.

The two newest step checkpoints stay, so that one damaged file never costs the run, and with them every best checkpoint
that one of them names. Entries with other names than the two above are neither read nor removed.
"""

from __future__ import annotations

import errno
import hashlib
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

from boosted_attention.files import file_sha256
from boosted_attention.validation import InputError

KEPT = 2  # step checkpoints
SHARD_BYTES = 2 * 2**30  # of a file
PLACE = re.compile(r"(step|best)-(\d{8})")
UNFINISHED = re.compile(r"\.(step|best)-\d{8}\.\d+")

TensorGroups = Mapping[str, Mapping[str, Tensor]]  # "model" and "optimizer", each with tensors by name


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are whole."""

    folder: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return self.state["step"]

    @property
    def best_step(self) -> int | None:
        """Step of the run's best checkpoint when this one was written; None before the first evaluation."""
        best = self.state.get("best")
        return None if best is None else best["step"]

    def tensors(self, name: str) -> CheckpointTensors:
        """Open the tensors of the model ("model") or the optimizer ("optimizer")."""
        index = self.folder / f"{name}.safetensors.index.json"
        if not index.exists():
            return CheckpointTensors([self.folder / f"{name}.safetensors"])
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return CheckpointTensors([self.folder / file for file in sorted(files)])


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


def damage(folder: Path) -> str | None:
    """Say which file of a checkpoint is missing or damaged; None if it is whole."""
    path = folder / "state.json"
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["sha256"] != seal(state):
            return f"{path} is damaged"
        files = state["files"]
    except FileNotFoundError:
        return f"{path} is missing"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{path} is damaged"
    for name, sha256 in files.items():
        if not (folder / name).is_file():
            return f"{folder / name} is missing"
        if file_sha256(folder / name) != sha256:
            return f"{folder / name} is damaged"
    return None


def opened(folder: Path) -> tuple[Checkpoint | None, str | None]:
    """Open a checkpoint, or say what is wrong with it."""
    problem = damage(folder)
    if problem is not None:
        return None, problem
    return Checkpoint(folder, json.loads((folder / "state.json").read_text(encoding="utf-8"))), None


def latest(parent: Path, kind: str) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest whole checkpoint of a kind, and what is wrong with newer ones."""
    problems = []
    for step in reversed(steps_of(parent, kind)):
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
        (temporary / "state.json").write_text(sealed({**state, "step": step, "files": files}), encoding="utf-8")
        publish(temporary, final)
    except (OSError, SafetensorError) as error:
        needed = sum(size(t) for group in tensors.values() for t in group.values())
        message = full_disk(error, final, needed, kind)
        shutil.rmtree(temporary, ignore_errors=True)
        raise InputError(message) from None
    problem = damage(final)
    if problem is not None:
        raise InputError(f"{problem} right after it was written; the checkpoint before it is kept")
    remove_older(parent, step)


def write_tensors(
    folder: Path, tensors: TensorGroups, whole: Callable[[Tensor], Tensor], write: bool
) -> tuple[dict[str, str], Exception | None]:
    """Write the tensors file by file; return the sha256 of each file, and what went wrong if something did.

    A process that does not write, or whose writing has failed, still goes through all tensors: the others wait for it.
    """
    files: dict[str, str] = {}
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
                files[file] = flushed_sha256(folder / file)
            except (OSError, SafetensorError) as error:
                failure = error
    return files, failure


def write_indices(folder: Path, tensors: TensorGroups) -> dict[str, str]:
    """Write the index of every group that is divided over several files; return the sha256 of each index."""
    files = {}
    for name, group in tensors.items():
        parts = shards(name, group)
        if len(parts) > 1:
            where = {key: file for file, keys in parts.items() for key in keys}
            about = {"metadata": {"total_size": sum(map(size, group.values()))}, "weight_map": where}
            path = folder / f"{name}.safetensors.index.json"
            path.write_text(json.dumps(about, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            files[path.name] = flushed_sha256(path)
    return files


def publish(temporary: Path, final: Path) -> None:
    """Move a finished checkpoint to its place, in an order that survives a power cut."""
    flush(temporary / "state.json")
    flush(temporary)
    if final.exists():
        shutil.rmtree(final)  # of an earlier attempt at this step
    temporary.rename(final)
    flush(final.parent)


def remove_older(parent: Path, step: int) -> None:
    """Keep the newest step checkpoints up to ``step``, the newest best one, and those that a kept one names."""
    steps, bests = ([n for n in steps_of(parent, kind) if n <= step] for kind in ("step", "best"))
    named = {best_named_by(place(parent, "step", n)) for n in steps[-KEPT:]} | set(bests[-1:])
    for n in steps[:-KEPT]:
        shutil.rmtree(place(parent, "step", n))
    for n in bests:
        if n not in named:
            shutil.rmtree(place(parent, "best", n))


def best_named_by(folder: Path) -> int | None:
    """Return the step of the best checkpoint that a step checkpoint names; None if it cannot be read."""
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        return Checkpoint(folder, state).best_step
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def clear(parent: Path, step: int) -> None:
    """Remove what a dead process left half-written, and checkpoints beyond ``step``, where the run goes on from."""
    for path in parent.glob(".*"):
        if UNFINISHED.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
    for kind in ("step", "best"):
        for n in steps_of(parent, kind):
            if n > step:
                shutil.rmtree(place(parent, kind, n))


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


def sealed(state: dict[str, Any]) -> str:
    """Return the state as JSON, with the sha256 of its own content."""
    return json.dumps({**state, "sha256": seal(state)}, indent=1, sort_keys=True) + "\n"


def seal(state: Mapping[str, Any]) -> str:
    """Return the sha256 of a state without its own checksum."""
    rest = {key: value for key, value in state.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def flushed_sha256(path: Path) -> str:
    """Flush a file to the disk and return its sha256."""
    flush(path)
    return file_sha256(path)


def flush(path: Path) -> None:
    """Have the disk keep a file, or the entries of a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
