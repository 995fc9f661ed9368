"""How far the gates open: per layer, correction and dimension, by position and by token.

Reference: "Gradient Boosting within a Single Attention Layer", Section 6.4, whose figures are the mean over dimensions
and the standard deviation over dimensions of the gate's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boosted_attention.analysis.survey import Histogram, Mean
from boosted_attention.attention.trace import LayerTrace

BINS = 20
OPEN = 0.5  # a gate above this lets most of the correction through
SHOWN = 8  # tokens with the widest gates, and with the narrowest
FEWEST = 5  # occurrences of a token before its mean gate is listed


class GateStudy:
    """Distribution of g over sequences."""

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size
        self.found: dict[tuple[int, int], OneGate] = {}

    def add(self, ids: Tensor, traces: Sequence[LayerTrace]) -> None:
        for layer, trace in enumerate(traces):
            for m, r in enumerate(trace.rounds[1:], start=1):
                assert r.gate is not None
                self.found.setdefault((layer, m), OneGate(self.vocab_size)).add(ids, r.gate)

    def result(self) -> list[dict[str, Any]]:
        return [{"layer": layer, "round": m, **gate.result()} for (layer, m), gate in sorted(self.found.items())]


class OneGate:
    """The gate of one correction in one layer."""

    def __init__(self, vocab_size: int):
        self.dimensions, self.squares, self.positions, self.opened = Mean(), Mean(), Mean(), Mean()
        self.histogram = Histogram(0.0, 1.0, BINS)
        self.by_token = torch.zeros(2, vocab_size, dtype=torch.float64)  # sum, count

    def add(self, ids: Tensor, gate: Tensor) -> None:
        gate = gate.cpu().double()  # (B, T, D)
        flat = gate.flatten(0, 1)  # (B*T, D)
        self.dimensions.add(flat)
        self.squares.add(flat.square())
        self.positions.add(gate.mean(dim=-1))  # (B, T)
        self.opened.add((flat > OPEN).double())
        self.histogram.add(gate)
        index, means = ids.flatten().cpu(), flat.mean(dim=-1)
        self.by_token[0].index_add_(0, index, means)
        self.by_token[1].index_add_(0, index, torch.ones_like(means))

    def result(self) -> dict[str, Any]:
        per_dimension = self.dimensions.value  # (D,)
        variance = self.squares.value.mean() - per_dimension.mean() ** 2
        total, count = self.by_token
        seen = torch.nonzero(count >= FEWEST).flatten()
        order = seen[(total[seen] / count[seen]).argsort(stable=True)].tolist()
        token = [(i, float(total[i] / count[i]), int(count[i])) for i in order]
        shown = min(SHOWN, len(token) // 2)  # no token is among both
        return {
            "mean": float(per_dimension.mean()),
            "spread": float(per_dimension.std(correction=0)),  # over dimensions
            "std": float(variance.clamp_min(0).sqrt()),  # over everything
            "open": float(self.opened.value.mean()),
            "histogram": self.histogram.result(),
            "dimensions": per_dimension.tolist(),
            "positions": self.positions.value.tolist(),
            "widest_tokens": [list(t) for t in reversed(token[len(token) - shown :])],
            "narrowest_tokens": [list(t) for t in token[:shown]],
        }
