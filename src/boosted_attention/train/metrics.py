"""metrics.jsonl: a row for each step and each evaluation, cut back to the checkpoint when a run resumes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from boosted_attention.analysis.dynamics import DynamicsAtStep, RoundDynamics
from boosted_attention.files import write_atomically
from boosted_attention.records import from_json, to_json
from boosted_attention.train.results import EvaluationRow, StepRow
from boosted_attention.validation import InputError


class Metrics:
    """Writes the metrics of a run, into a file and, on request, for TensorBoard.

    Args:
        path: the file, metrics.jsonl in the run's folder.
        tensorboard: also write TensorBoard files, beside it.
    """

    def __init__(self, path: Path, tensorboard: bool = False):
        self.path = path
        self.file = None
        self.tensorboard, self.board = tensorboard, None

    def cut(self, step: int) -> int:
        """Keep rows up to ``step`` and return their number; rows beyond it will be written again."""
        if self.tensorboard:
            self.board = open_board(self.path.parent / "tensorboard", step)
        kept = [row for row in read_metrics(self.path) if row["step"] <= step] if step else []
        write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in kept))
        self.file = self.path.open("a", encoding="utf-8")
        return len(kept)

    def write(self, row: StepRow | EvaluationRow) -> None:
        assert self.file is not None, "cut first"
        values = to_json(row)
        self.file.write(json.dumps(values) + "\n")
        self.file.flush()
        if self.board is not None:
            for key, value in values.items():
                if isinstance(value, float):
                    self.board.add_scalar(key, value, row.step)

    def flush(self) -> None:
        assert self.file is not None, "cut first"
        os.fsync(self.file.fileno())

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        if self.board is not None:
            self.board.close()


class NoMetrics:
    """Writes nothing: for a process that leaves writing to another."""

    def cut(self, step: int) -> int:
        return step

    def write(self, row: StepRow | EvaluationRow) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the rows as plain dicts; a last line cut off by a crash is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            break
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            break
        rows.append(row)
    return rows


def step_rows(folder: Path) -> list[StepRow]:
    """Return the updates of the run in a folder."""
    return [from_json(StepRow, row) for row in read_metrics(folder / "metrics.jsonl") if "loss" in row]


def evaluation_rows(folder: Path) -> list[EvaluationRow]:
    """Return the evaluations of the run in a folder."""
    rows = read_metrics(folder / "metrics.jsonl")
    return [from_json(EvaluationRow, row) for row in rows if "validation_loss" in row]


def dynamics_of(folder: Path) -> list[DynamicsAtStep]:
    """Return what the rounds did at each evaluation of the run in a folder.

    Rows that do not hold what a trainer writes are left out, as are those of models without rounds.
    """
    found = []
    for row in read_metrics(folder / "metrics.jsonl"):
        try:
            rounds = from_json(list[RoundDynamics], row.get("rounds"))
        except ValueError:
            continue
        if rounds:
            found.append(DynamicsAtStep(step=row["step"], rounds=rounds))
    return found


def open_board(folder: Path, step: int) -> Any:
    """Open TensorBoard's writer, which drops what it wrote beyond ``step``."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("tensorboard=True needs tensorboard (pip install 'boosted-attention[tensorboard]')") from None
    return SummaryWriter(folder, purge_step=step + 1 if step else None)
