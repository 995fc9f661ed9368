"""How far the gates open: per layer, correction and dimension, by position and by token.

Reference: "Gradient Boosting within a Single Attention Layer", Section 6.4, which gives the mean over dimensions, and
the standard deviation over dimensions of the gate's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from boosted_attention.analysis.survey import Distribution, Histogram, Mean
from boosted_attention.attention.trace import LayerTrace
from boosted_attention.documentation import documented

GATE_BINS = 20
OPEN = 0.5  # a gate above this lets most of the correction through
TOKENS_SHOWN = 8  # tokens with the widest gates, and with the narrowest
FEWEST_OCCURRENCES = 5  # of a token before its mean gate is listed


class TokenGate(NamedTuple):
    """The mean gate at one token of the vocabulary, and how often the token occurred."""

    token: str
    mean: float
    occurrences: int


@documented
@dataclass(frozen=True, kw_only=True)
class GateFinding:
    """The gate of one correction in one layer, over all sequences."""

    layer: int  # Index of the layer, from 0.
    round: int  # Index of the correction's round, from 1.
    mean: float  # Mean gate over positions and dimensions.
    spread: float  # Standard deviation, over dimensions, of the mean gate.
    std: float  # Standard deviation over positions and dimensions together.
    open: float  # Share of gates above one half.
    histogram: Distribution  # Distribution of the gate between 0 and 1.
    dimensions: list[float]  # Mean gate of each dimension, (D,); (1,) for a shared gate, (H,) for one per head.
    positions: list[float]  # Mean gate at each position, (T,).
    widest_tokens: list[TokenGate]  # Tokens of the vocabulary with the widest mean gates, the widest first.
    narrowest_tokens: list[TokenGate]  # Tokens of the vocabulary with the narrowest mean gates, the narrowest first.


class GateStudy:
    """Distribution of the gates over sequences.

    Args:
        vocabulary: the text of every token id.
    """

    def __init__(self, vocabulary: Sequence[str]):
        self.vocabulary = vocabulary
        self.found: dict[tuple[int, int], GateSums] = {}

    def add(self, ids: Tensor, traces: Sequence[LayerTrace]) -> None:
        for layer, trace in enumerate(traces):
            for m, r in enumerate(trace.rounds):
                gate = r.gate
                if gate is not None:
                    self.found.setdefault((layer, m), GateSums(len(self.vocabulary))).add(ids, gate)

    def result(self) -> list[GateFinding]:
        return [sums.result(layer, m, self.vocabulary) for (layer, m), sums in sorted(self.found.items())]


class GateSums:
    """Sums over the gates of one correction in one layer."""

    def __init__(self, vocab_size: int):
        self.dimensions, self.squares, self.positions, self.opened = Mean(), Mean(), Mean(), Mean()
        self.histogram = Histogram(0.0, 1.0, GATE_BINS)
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

    def result(self, layer: int, m: int, vocabulary: Sequence[str]) -> GateFinding:
        per_dimension = self.dimensions.value  # (D,)
        variance = self.squares.value.mean() - per_dimension.mean() ** 2
        tokens = self.tokens(vocabulary)
        shown = min(TOKENS_SHOWN, len(tokens) // 2)  # no token is in both lists
        return GateFinding(
            layer=layer,
            round=m,
            mean=float(per_dimension.mean()),
            spread=float(per_dimension.std(correction=0)),
            std=float(variance.clamp_min(0).sqrt()),
            open=float(self.opened.value.mean()),
            histogram=self.histogram.result(),
            dimensions=per_dimension.tolist(),
            positions=self.positions.value.tolist(),
            widest_tokens=tokens[len(tokens) - shown :][::-1],
            narrowest_tokens=tokens[:shown],
        )

    def tokens(self, vocabulary: Sequence[str]) -> list[TokenGate]:
        """The tokens that occurred often enough, from the narrowest gate to the widest."""
        total, count = self.by_token
        seen = torch.nonzero(count >= FEWEST_OCCURRENCES).flatten()
        order = seen[(total[seen] / count[seen]).argsort(stable=True)].tolist()
        return [TokenGate(vocabulary[int(i)], float(total[i] / count[i]), int(count[i])) for i in order]
