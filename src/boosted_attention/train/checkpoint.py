"""Checkpoints: safetensors and JSON, whole or absent, and no pickle anywhere.

    RUN/checkpoints/step-00000200/   model.safetensors   optimizer.safetensors   state.json
    RUN/checkpoints/best-00000150/   model.safetensors   state.json

What is larger than SHARD_BYTES is divided, as transformers divides it: model-00001-of-00003.safetensors and so on, with
model.safetensors.index.json to say which tensor is where. Tensors of a model that is spread over processes are put
together one at a time; the process that writes holds those of one file. The files do not show how it was spread.
``state.json`` holds the sha256 of the other files and of itself. A checkpoint is written beside its place, flushed to
the disk, renamed and read back; the one before it stays, so that one damaged file never costs the run.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
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

KEPT = 2  # full checkpoints
SHARD_BYTES = 2 * 2**30  # of a file


@dataclass(frozen=True)
class Checkpoint:
    folder: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return self.state["step"]

    def tensors(self, name: str) -> Tensors:
        """The tensors of the model ("model") or the optimizer ("optimizer")."""
        index = self.folder / f"{name}.safetensors.index.json"
        if not index.exists():
            return Tensors([self.folder / f"{name}.safetensors"])
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return Tensors([self.folder / file for file in sorted(files)])


class Tensors(Mapping[str, Tensor]):
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


def save(
    parent: Path,
    kind: str,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: dict[str, Any],
    *,
    whole: Callable[[Tensor], Tensor] = lambda t: t,
    write: bool = True,
) -> None:
    """Write ``kind``-``step`` with safetensors files for each entry of ``tensors``; older ones go when it is verified.

    ``whole`` puts a divided tensor together; every process calls this then, and the one with ``write`` writes. It goes
    through all tensors even when writing has failed, for the others are waiting.
    """
    final = parent / f"{kind}-{step:08d}"
    temporary = parent / f".{final.name}.{os.getpid()}"
    needed = sum(size(t) for group in tensors.values() for t in group.values())
    failure: Exception | None = None
    files = {}
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
                    shutil.rmtree(temporary, ignore_errors=True)
                    temporary.mkdir(parents=True)
                save_file(held, temporary / file)
                files[file] = kept(temporary / file)
            except (OSError, SafetensorError) as error:
                failure = error
    if not write:
        return
    try:
        if failure is not None:
            raise failure
        for name, group in tensors.items():
            index = shards(name, group)
            if len(index) > 1:
                where = {key: file for file, keys in index.items() for key in keys}
                about = {"metadata": {"total_size": sum(map(size, group.values()))}, "weight_map": where}
                path = temporary / f"{name}.safetensors.index.json"
                path.write_text(json.dumps(about, indent=1, sort_keys=True) + "\n", encoding="utf-8")
                files[path.name] = kept(path)
        (temporary / "state.json").write_text(sealed({**state, "step": step, "files": files}), encoding="utf-8")
        flush(temporary / "state.json")
        flush(temporary)
        if final.exists():
            shutil.rmtree(final)  # of an earlier attempt at this step
        temporary.rename(final)
        flush(parent)
    except (OSError, SafetensorError) as error:
        message = full_disk(error, final, needed, kind)
        shutil.rmtree(temporary, ignore_errors=True)
        raise InputError(message) from None
    problem = damage(final)
    if problem is not None:
        raise InputError(f"{problem} right after it was written; the checkpoint before it is kept")
    keep = KEPT if kind == "step" else 1
    older = [path for path in sorted(parent.glob(f"{kind}-*")) if path.name <= final.name]
    for old in older[:-keep]:
        shutil.rmtree(old)


def size(t: Tensor) -> int:
    return t.numel() * t.element_size()


def shards(name: str, group: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """Which tensors go into which file: one, or as many as SHARD_BYTES asks for."""
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


def kept(path: Path) -> str:
    """Have the disk keep a file; its sha256."""
    flush(path)
    return file_sha256(path)


def clear(parent: Path, step: int) -> None:
    """Remove what a dead process left half-written, and checkpoints beyond ``step``, where the run goes on from."""
    for path in parent.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in parent.glob("*-*"):
        if int(path.name.rpartition("-")[2]) > step:
            shutil.rmtree(path)


def full_disk(error: Exception, final: Path, needed: int, kind: str) -> str:
    previous = sorted(final.parent.glob(f"{kind}-*"))
    kept = f"{previous[-1].name} is kept" if previous else "there is none before it"
    free = shutil.disk_usage(final.parent).free if final.parent.exists() else 0
    numbers = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
    full = getattr(error, "errno", None) in numbers or any(f"os error {n}" in str(error) for n in numbers)
    what = "the disk is full" if full else str(error)  # safetensors writes the number into its message
    return f"checkpoint {final} was not written: {what}; it needs {needed} bytes and {free} were left; {kept}"


def sealed(state: dict[str, Any]) -> str:
    """The state as JSON, with the sha256 of its own content."""
    return json.dumps({**state, "sha256": seal(state)}, indent=1, sort_keys=True) + "\n"


def seal(state: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in state.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def damage(folder: Path) -> str | None:
    """Which file of a checkpoint is missing or damaged; None if it is whole."""
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


def latest(parent: Path, kind: str) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint, and what is wrong with newer ones."""
    problems = []
    for folder in sorted(parent.glob(f"{kind}-*"), reverse=True):
        problem = damage(folder)
        if problem is None:
            state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            return Checkpoint(folder, state), problems
        problems.append(problem)
    return None, problems


def flush(path: Path) -> None:
    """Have the disk keep a file or a folder's entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
