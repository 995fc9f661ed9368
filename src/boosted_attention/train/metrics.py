"""metrics.jsonl: one row per step and one per evaluation, cut back to the checkpoint when a run resumes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boosted_attention.analysis.dynamics import DynamicsAtStep, RoundDynamics
from boosted_attention.files import write_atomically
from boosted_attention.records import from_json
from boosted_attention.validation import InputError


class Metrics:
    def __init__(self, path: Path, tensorboard: bool = False):
        self.path = path
        self.file = None
        self.tensorboard, self.board = tensorboard, None

    def cut(self, step: int) -> int:
        """Keep rows up to ``step``, and count them; what a killed run wrote behind it will be written again."""
        if self.tensorboard:
            self.board = open_board(self.path.parent / "tensorboard", step)
        kept = [row for row in read_metrics(self.path) if row["step"] <= step] if step else []
        write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in kept))
        self.file = self.path.open("a", encoding="utf-8")
        return len(kept)

    def write(self, row: Mapping[str, Any]) -> None:
        assert self.file is not None, "cut first"
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()
        if self.board is not None:
            for key, value in row.items():
                if isinstance(value, float):
                    self.board.add_scalar(key, value, row["step"])

    def flush(self) -> None:
        assert self.file is not None, "cut first"
        os.fsync(self.file.fileno())

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        if self.board is not None:
            self.board.close()


class NoMetrics:
    """Of a process that leaves writing to another."""

    def cut(self, step: int) -> int:
        return step

    def write(self, row: Mapping[str, Any]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows; a last line cut off by a crash is left out."""
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


def dynamics_of(folder: Path) -> list[DynamicsAtStep]:
    """Read what the rounds did at each evaluation of a run.

    Rows that do not hold what a trainer writes are left out, as are those of models without rounds.

    Args:
        folder: the run.
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
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("--tensorboard needs tensorboard (pip install 'boosted-attention[tensorboard]')") from None
    return SummaryWriter(folder, purge_step=step + 1 if step else None)
