"""How widely each round spreads its attention, in nats, and whether a sharper correction has a wider gate.

    H(w) = -sum_s w_s log w_s,    0 for one key, log t for t keys alike

Reference: "Gradient Boosting within a Single Attention Layer", Section 6.4: round 0 more diffuse than standard
attention, round 1 more focused, and sharpness going with gate openness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from boosted_attention.analysis.survey import Distribution, Histogram, Mean, by_layer
from boosted_attention.attention.trace import LayerTrace
from boosted_attention.documentation import documented

ENTROPY_BINS = 24


@documented
@dataclass(frozen=True, kw_only=True)
class EntropyFinding:
    """Entropy of one round's attention in one layer."""

    layer: int  # Index of the layer, from 0.
    round: int  # Index of the round, from 0.
    mean: float  # Mean entropy over heads and queries, in nats.
    heads: list[float]  # Mean entropy of each head, (H,).
    histogram: Distribution  # Distribution of the entropy over heads and queries.
    correlation_with_gate: float | None = None
    """Correlation of sharpness (minus the entropy) with the gate over tokens; None without a gate that varies."""


@dataclass(frozen=True, kw_only=True)
class EntropyRatio:
    """How much more diffuse than the other model's layer a round is, in percent; negative is sharper."""

    layer: int
    round: int
    percent: float


@dataclass(frozen=True, kw_only=True)
class EntropyComparison:
    """Entropies of a model, and of the one it is compared with if there is one."""

    model: list[EntropyFinding]
    against: list[EntropyFinding] | None
    ratios: list[EntropyRatio] | None


def entropies(weights: Tensor) -> Tensor:
    """Entropy of attention weights (..., S) over the keys: (...); 0 for a query that sees no key."""
    return torch.special.entr(weights.float()).sum(dim=-1)


class EntropyStudy:
    """Mean entropy per layer, round and head; and, token by token, its correlation with the gate.

    Rounds without an attention map are left out.

    Args:
        length: positions of a sequence, which bound the entropy.
    """

    def __init__(self, length: int):
        self.length = length
        self.heads: dict[tuple[int, int], Mean] = {}
        self.histograms: dict[tuple[int, int], Histogram] = {}
        self.pairs: dict[tuple[int, int], list[np.ndarray]] = {}  # (sharpness, gate) of every token

    def add(self, ids: Tensor, traces: Sequence[LayerTrace]) -> None:
        top = math.log(max(2, self.length))
        for layer, trace in enumerate(traces):
            for m, r in enumerate(trace.rounds):
                if not r.has_map:
                    continue
                h = entropies(r.weights)  # (B, H, T)
                self.heads.setdefault((layer, m), Mean()).add(h.transpose(1, 2).flatten(0, 1))
                self.histograms.setdefault((layer, m), Histogram(0.0, top, ENTROPY_BINS)).add(h)
                gate = r.gate
                if gate is not None:
                    both = torch.stack([-h.mean(dim=1), gate.float().mean(dim=-1)])  # (2, B, T)
                    self.pairs.setdefault((layer, m), []).append(both.flatten(1).cpu().numpy())

    def result(self) -> list[EntropyFinding]:
        found = []
        for (layer, m), heads in sorted(self.heads.items()):
            pairs = self.pairs.get((layer, m))
            found.append(
                EntropyFinding(
                    layer=layer,
                    round=m,
                    mean=float(heads.value.mean()),
                    heads=heads.value.tolist(),
                    histogram=self.histograms[layer, m].result(),
                    correlation_with_gate=None if pairs is None else correlation(*np.concatenate(pairs, axis=1)),
                )
            )
        return found


def correlation(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float | None:
    """Pearson's correlation; None where one of the two does not vary."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's correlation; None where one of the two does not vary."""
    from scipy.stats import rankdata

    return correlation(rankdata(a), rankdata(b))


def ratios(findings: Sequence[EntropyFinding], standard: Sequence[EntropyFinding]) -> list[EntropyRatio]:
    """Compare every round with round 0 of the same layer of another model, where that one has any entropy."""
    base = {layer: finding.mean for layer, finding in by_layer(standard, 0).items() if finding.mean}
    return [
        EntropyRatio(layer=f.layer, round=f.round, percent=100 * (f.mean / base[f.layer] - 1))
        for f in findings
        if f.layer in base
    ]
