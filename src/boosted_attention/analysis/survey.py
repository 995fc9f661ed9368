"""One pass over sequences, many studies: each reads the traces of a few sequences at a time, so memory stays bounded.

A study has ``add(ids, traces)``, called with ids (B, T) and one LayerTrace per layer, and ``result()``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from boosted_attention.attention.trace import LayerTrace, RoundTrace, capture
from boosted_attention.validation import require

Progress = Callable[[float], None]


class Study(Protocol):
    def add(self, ids: Tensor, traces: Sequence[LayerTrace]) -> None: ...
    def result(self) -> Any: ...


def draw_rows(tokens: np.ndarray, length: int, count: int, seed: int = 0) -> Tensor:
    """``count`` rows of length + 1 tokens (n, T + 1) from anywhere in a split, none overlapping; in text order."""
    available = (len(tokens) - 1) // length
    require(
        available >= 1,
        f"the test split has {len(tokens)} tokens; sequences of {length} need at least {length + 1} (--length makes "
        "them shorter)",
    )
    chosen = np.sort(np.random.default_rng(seed).permutation(available)[:count])
    rows = np.stack([tokens[i * length : (i + 1) * length + 1] for i in chosen])
    return torch.from_numpy(rows.astype(np.int64))


def logits_of(model: nn.Module, ids: Tensor) -> Tensor:
    """(B, T) -> (B, T, V), for models that return logits and those that return an object with them."""
    out = model(ids)
    return getattr(out, "logits", out)


def token_losses_of(model: nn.Module, rows: Tensor) -> Tensor:
    """Cross-entropy of every predicted token of rows (n, T + 1), (n, T)."""
    logits = logits_of(model, rows[:, :-1]).float()
    return nn.functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")


def losses_by_row(model: nn.Module, rows: Tensor, progress: Progress | None = None) -> Tensor:
    """``token_losses_of`` one row at a time, which bounds the logits, on the CPU: (n, T)."""
    device, parts = next(model.parameters()).device, []
    for i, row in enumerate(rows):
        parts.append(token_losses_of(model, row[None].to(device)).cpu())
        if progress is not None:
            progress((i + 1) / len(rows))
    return torch.cat(parts)


@torch.no_grad()
def survey(
    model: nn.Module, rows: Tensor, studies: Sequence[Study], *, batch_size: int = 1, progress: Progress | None = None
) -> None:
    """Show every study the traces of rows (n, T + 1), a batch at a time."""
    device = next(model.parameters()).device
    with capture(model) as traces:
        for start in range(0, len(rows), batch_size):
            ids = rows[start : start + batch_size, :-1].to(device)
            model(ids)
            for study in studies:
                study.add(ids, list(traces.values()))
            if progress is not None:
                progress(min(1.0, (start + batch_size) / len(rows)))


def gate_of(r: RoundTrace) -> Tensor | None:
    """A round's gate per dimension (B, T, D), or (B, T, 1) where one number serves all; None in round 0."""
    if r.gate is None or r.gate.ndim:
        return r.gate
    return r.gate.expand(*r.estimate.shape[:2], 1)


class Histogram:
    """Counts in equal bins between two bounds; what lies outside goes to the nearest bin."""

    def __init__(self, low: float, high: float, bins: int):
        self.low, self.high, self.counts = low, high, np.zeros(bins, dtype=np.int64)

    def add(self, values: Tensor) -> None:
        scaled = (values.cpu().double() - self.low) / (self.high - self.low) * len(self.counts)
        index = scaled.long().clamp(0, len(self.counts) - 1).flatten()
        self.counts += torch.bincount(index, minlength=len(self.counts)).numpy()

    def result(self) -> dict[str, Any]:
        share = self.counts / max(1, self.counts.sum())
        return {"low": self.low, "high": self.high, "share": share.tolist()}


class Mean:
    """A running mean of equally shaped tensors, in float64 and on the CPU."""

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.count = 0

    def add(self, values: Tensor) -> None:
        """``values`` (n, ...) are n observations."""
        summed = values.cpu().double().sum(dim=0)
        self.total = summed if self.total is None else self.total + summed
        self.count += values.shape[0]

    @property
    def value(self) -> Tensor:
        assert self.total is not None, "nothing was added"
        return self.total / self.count


def rounded(value: Any, digits: int = 6) -> Any:
    """Numbers of a JSON value to so many significant digits, which is more than the sampling supports.

    Raises ValueError where one is infinite or NaN, as those of a broken model are.
    """
    if isinstance(value, dict):
        return {key: rounded(v, digits) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v, digits) for v in value]
    if isinstance(value, float):
        require(bool(np.isfinite(value)), "the analysis met infinite or NaN values: the model's weights are broken")
        return float(f"{value:.{digits}g}")
    return value
