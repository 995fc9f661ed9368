"""metrics.jsonl: a row for each step and each evaluation, cut back to the checkpoint when a run resumes.

Every checkpoint seals the rows up to it, and result.json all of them: rows that no seal vouches for are not handed on.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boosted_attention.analysis.dynamics import DynamicsAtStep
from boosted_attention.records import from_json, to_json
from boosted_attention.storage.documents import DamagedError, is_there, read_bytes, typed
from boosted_attention.storage.sealing import FILES, SEAL, FileEntry, files_of, read_sealed, verify
from boosted_attention.storage.writing import free_name, write_atomically
from boosted_attention.train import checkpoint
from boosted_attention.train.results import EvaluationRow, RunResult, StepRow
from boosted_attention.train.settings import CONFIG
from boosted_attention.train.sinks import Copies

METRICS, RESULT = "metrics.jsonl", "result.json"
LARGEST = 2**32  # bytes of all rows


class Metrics:
    """Writes the metrics of a run into a file, and hands copies on.

    Args:
        path: the file, metrics.jsonl in the run's folder.
        copies: what gets copies of its rows.
    """

    def __init__(self, path: Path, copies: Copies):
        self.path, self.copies = path, copies
        self.file = None
        self.digest, self.size = hashlib.sha256(), 0  # of what was written

    def cut(self, step: int, sealed: FileEntry | None) -> list[str]:
        """Keep the rows up to ``step``, which a checkpoint has sealed; return what is wrong with them.

        Args:
            step: where the run goes on; rows beyond it will be written again.
            sealed: size and sha256 of the rows up to ``step``; None for a run that begins.
        """
        kept, problems = b"", []
        if sealed is not None:
            try:
                kept = sealed_part(self.path, sealed)
            except DamagedError as problem:
                problems.append(f"{problem}; rows before step {step} are lost")
                if self.path.exists():
                    self.path.rename(free_name(self.path))
        write_atomically(self.path, kept.decode())
        self.digest, self.size = hashlib.sha256(kept), len(kept)
        self.file = self.path.open("ab")
        if self.copies.sinks:
            self.copies.begin(rows_in(kept))
        return problems

    def write(self, row: StepRow | EvaluationRow) -> None:
        assert self.file is not None, "cut first"
        values = to_json(row)
        line = f"{json.dumps(values)}\n".encode()
        self.file.write(line)
        self.file.flush()
        self.digest.update(line)
        self.size += len(line)
        self.copies.log(values)

    def written(self) -> FileEntry:
        """Return size and sha256 of the rows so far."""
        return FileEntry(bytes=self.size, sha256=self.digest.hexdigest())

    def flush(self) -> None:
        assert self.file is not None, "cut first"
        os.fsync(self.file.fileno())

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.copies.finish()


class NoMetrics:
    """Writes nothing: for a process that leaves writing to another."""

    def cut(self, step: int, sealed: FileEntry | None) -> list[str]:
        return []

    def written(self) -> FileEntry | None:
        return None

    def write(self, row: StepRow | EvaluationRow) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the rows as plain dicts, sealed or not; a last line cut off by a crash is left out."""
    if not path.exists():
        return []
    return rows_in(read_bytes(path, LARGEST))


def rows_in(content: bytes) -> list[dict[str, Any]]:
    """Return rows as plain dicts, up to the first line that is none."""
    rows = []
    for line in content.decode("utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            break
        rows.append(row)
    return rows


def sealed_part(path: Path, sealed: FileEntry) -> bytes:
    """Return the first bytes of a file, which must be what was sealed."""
    content = read_bytes(path, LARGEST)[: sealed.bytes]
    if FileEntry(bytes=len(content), sha256=hashlib.sha256(content).hexdigest()) != sealed:
        raise DamagedError(f"{path} is damaged: its rows are not those that were sealed")
    return content


def sealed_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a run that its result vouches for, or its last checkpoint while it has none.

    Args:
        folder: the run's folder.

    Raises:
        DamagedError: result.json or metrics.jsonl are not what was written.
    """
    if is_there(folder / RESULT):
        path = folder / RESULT
        sealed = files_of(read_sealed(path), path).get(METRICS)  # none where a run is handed on without its history
    else:
        found, _ = checkpoint.latest(folder / "checkpoints", "step")
        sealed = None if found is None else metrics_of(found)
    return [] if sealed is None else rows_in(sealed_part(folder / METRICS, sealed))


def read_result(folder: Path) -> RunResult | None:
    """Return what came out of the run in a folder; None where it has not come to its end.

    Args:
        folder: the run's folder.

    Raises:
        DamagedError: result.json is not what was written, or config.json is another than that of the result.
    """
    path = folder / RESULT
    if not is_there(path):
        return None
    document = read_sealed(path)
    verify(folder, files_of(document, path), [CONFIG])
    return typed(RunResult, {key: value for key, value in document.items() if key not in (SEAL, FILES)}, path)


def metrics_of(found: checkpoint.Checkpoint) -> FileEntry:
    """Return size and sha256 of the rows up to a checkpoint."""
    return typed(FileEntry, found.state.get("metrics"), found.folder / checkpoint.STATE)


def step_rows(folder: Path) -> list[StepRow]:
    """Return the updates of the run in a folder."""
    return [from_json(StepRow, row) for row in sealed_rows(folder) if "loss" in row]


def evaluation_rows(folder: Path) -> list[EvaluationRow]:
    """Return the evaluations of the run in a folder."""
    return [from_json(EvaluationRow, row) for row in sealed_rows(folder) if "validation_loss" in row]


def dynamics_of(folder: Path) -> list[DynamicsAtStep]:
    """Return what the rounds did at each evaluation of the run in a folder; nothing of models without rounds."""
    rows: Sequence[EvaluationRow] = evaluation_rows(folder)
    return [DynamicsAtStep(step=row.step, rounds=row.rounds) for row in rows if row.rounds]
