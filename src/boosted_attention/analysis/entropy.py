"""How widely each round spreads its attention, in nats, and whether a sharper correction has a wider gate.

    H(w) = -sum_s w_s log w_s,    0 for one key, log t for t keys alike

Reference: "Gradient Boosting within a Single Attention Layer", Section 6.4: round 0 more diffuse than standard
attention, round 1 more focused, and sharpness going with gate openness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from boosted_attention.analysis.survey import Histogram, Mean
from boosted_attention.attention.trace import LayerTrace

BINS = 24


def entropies(weights: Tensor) -> Tensor:
    """(..., S) -> (...,); rows that see nothing have none, 0."""
    return torch.special.entr(weights.float()).sum(dim=-1)


class EntropyStudy:
    """Mean entropy per layer, round and head; and, token by token, its correlation with the gate."""

    def __init__(self, length: int):
        self.length = length
        self.heads: dict[tuple[int, int], Mean] = {}
        self.histograms: dict[tuple[int, int], Histogram] = {}
        self.pairs: dict[tuple[int, int], list[np.ndarray]] = {}  # (sharpness, gate) of every token

    def add(self, ids: Tensor, traces: Sequence[LayerTrace]) -> None:
        for layer, trace in enumerate(traces):
            for m, r in enumerate(trace.rounds):
                h = entropies(r.weights)  # (B, H, T)
                self.heads.setdefault((layer, m), Mean()).add(h.transpose(1, 2).flatten(0, 1))
                top = math.log(max(2, self.length))
                self.histograms.setdefault((layer, m), Histogram(0.0, top, BINS)).add(h)
                if r.gate is not None and r.gate.shape[-1] > 1:  # a gate that all dimensions share need not vary
                    both = torch.stack([-h.mean(dim=1), r.gate.float().mean(dim=-1)])  # (2, B, T)
                    self.pairs.setdefault((layer, m), []).append(both.flatten(1).cpu().numpy())

    def result(self) -> list[dict[str, Any]]:
        rows = []
        for (layer, m), heads in sorted(self.heads.items()):
            row = {"layer": layer, "round": m, "mean": float(heads.value.mean()), "heads": heads.value.tolist()}
            row["histogram"] = self.histograms[layer, m].result()
            if (layer, m) in self.pairs:
                row["correlation_with_gate"] = correlation(*np.concatenate(self.pairs[layer, m], axis=1))
            rows.append(row)
        return rows


def correlation(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float | None:
    """Pearson's; None where one of the two does not vary."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's."""
    from scipy.stats import rankdata

    return correlation(rankdata(a), rankdata(b))


def by_layer(rows: Sequence[dict[str, Any]], m: int, key: str = "mean") -> dict[int, Any]:
    """One round's values by layer, of a study's rows."""
    return {row["layer"]: row[key] for row in rows if row["round"] == m}


def ratios(rows: Sequence[dict[str, Any]], standard: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How much more diffuse than the standard model's layer each round is, in percent."""
    base = by_layer(standard, 0)
    return [
        {"layer": row["layer"], "round": row["round"], "percent": 100 * (row["mean"] / base[row["layer"]] - 1)}
        for row in rows
        if base.get(row["layer"])
    ]
