"""The exact distance of a point from a convex hull, by non-negative least squares; of a model's outputs from theirs.

    min_w ||V^T w - y||,  w >= 0,  sum w = 1

With A = [(V - y)^T; 1^T] and b = [0; 1], the minimiser of ||A w - b||^2 over w >= 0, scaled to sum 1, solves it: for
w = s u with sum u = 1 the objective is s^2 D(u)^2 + (s - 1)^2, whose minimum over s grows with D(u).

The paper measures the boosted output of a head against round 0's visible values. Few points in a space of many
dimensions have a hull of measure zero, so any generic change leaves it. Hence the controls: the first estimate itself
(inside), twicing with the same map, a random correction of the same norm, and positions that see more values than a
head has dimensions.

Reference: "Gradient Boosting within a Single Attention Layer", Section 6.4 and Appendix E.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.trace import RoundTrace, capture, traced_layers
from boosted_attention.documentation import documented
from boosted_attention.progress import Progress
from boosted_attention.records import json_key
from boosted_attention.validation import require

PAIRS = 600  # (position, head) pairs per layer, as in the paper
SEQUENCES = 30  # from which the pairs are drawn
MOST_VISIBLE = 64  # values a position of the paper sees at most
OUTSIDE = 1e-8  # of the output's norm; a smaller distance is inside up to rounding

BOOSTED_OUTPUT = "boosted"
FIRST_ESTIMATE = "first estimate"
TWICING = "twicing"
RANDOM_CORRECTION = "random correction"
OUTPUT_KINDS = (BOOSTED_OUTPUT, FIRST_ESTIMATE, TWICING, RANDOM_CORRECTION)


@documented
@dataclass(frozen=True, kw_only=True)
class HullDistances:
    """Distances of one kind of output from the hull of the visible values, over the sampled pairs of a layer."""

    n: int  # Number of sampled (position, head) pairs.
    up_to_head_dim: float  # Share of pairs that see no more values than a head has dimensions.
    mean: float  # Mean distance from the hull.
    relative: float  # Mean distance relative to the output's norm.
    largest_relative: float  # Largest distance relative to the output's norm.
    outside: float  # Share of pairs outside of the hull.
    largest_gap: float  # Largest duality gap, which certifies the distances.
    deciles: list[float]  # Deciles of the distance: eleven numbers, from the smallest distance to the largest.


@documented
@dataclass(frozen=True, kw_only=True)
class LayerHull:
    """Distances in one layer by kind of output (OUTPUT_KINDS): a layer of one round has its first estimate only."""

    layer: int  # Index of the layer, from 0.
    head_dim: int  # Dimensions of a head.
    paper: dict[str, HullDistances]  # Distances at positions that see up to 64 values, the paper's, by kind of output.
    beyond_head_dim: dict[str, HullDistances] | None = field(default=None, metadata=json_key("beyond head_dim"))
    """Distances where more values than dimensions are visible; None without such positions."""


@dataclass(frozen=True, kw_only=True)
class HullFinding:
    """Distances by layer, or why a model has none."""

    layers: list[LayerHull] | None
    refused: str | None


@dataclass(frozen=True, kw_only=True)
class HullComparison:
    """Distances in a model, and in the one it is compared with if there is one."""

    model: HullFinding
    against: HullFinding | None


class Measured(NamedTuple):
    """One output against the hull of the values it sees."""

    distance: float
    relative: float
    gap: float
    few: float  # 1 where no more values than dimensions are visible, else 0


def hull_distance(y: np.ndarray, points: np.ndarray) -> tuple[float, float]:
    """Distance of a point to a convex hull, and the duality gap that certifies it.

    The gap bounds how far the squared distance may be off, relative to that of the farthest point.

    Args:
        y: the point, (d,).
        points: the points that span the hull, (n, d).
    """
    from scipy.optimize import nnls  # slow to import, and training imports this package

    shifted = points - y  # (n, d)
    a = np.vstack([shifted.T, np.ones(len(points))])
    b = np.zeros(a.shape[0])
    b[-1] = 1.0
    w, _ = nnls(a, b)
    w = w / w.sum()
    offset = w @ shifted  # (d,)
    gradient = shifted @ offset
    farthest = (shifted**2).sum(axis=1).max()
    gap = (w @ gradient - gradient.min()) / farthest if farthest > 0 else 0.0
    return float(np.linalg.norm(offset)), float(gap)


def head_space_layers(model: nn.Module) -> list[AttentionLayer]:
    """The model's layers; raises InputError where a head's output is not an average of its values."""
    layers = []
    for name, layer in traced_layers(model).items():
        require(isinstance(layer, AttentionLayer), f"hull distance: {name} is not an attention layer of its own")
        assert isinstance(layer, AttentionLayer)
        require(
            layer.config.space == "heads",
            f"hull distance: {name} works in output space, where a head's output is projected and added to others; "
            "it is defined in head space only (space='heads')",
        )
        require(
            set(layer.config.learners) == {"softmax"},
            f"hull distance: {name} has learner={layer.config.learner!r}, whose outputs are no averages of values; "
            "it is defined for learner='softmax'",
        )
        layers.append(layer)
    return layers


def average(r: RoundTrace, row: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Recompute one head's causal attention matrix (T, T) and values (T, dh) in float64 from its projections."""
    group = r.q.shape[1] // r.k.shape[1]
    q, k, v = (t[row, h].cpu().double() for t, h in ((r.q, head), (r.k, head // group), (r.v, head // group)))
    scores = r.scale * q @ k.T  # (T, T)
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(dim=-1).numpy(), v.numpy()


def head_outputs(
    rounds: Sequence[RoundTrace], row: int, head: int, draw: np.random.Generator
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Recompute a head's values in round 0 (T, dh), and each kind of output (T, dh) measured against their hull.

    Args:
        rounds: the trace of a layer.
        row: sequence of the batch.
        head: number of the head.
        draw: source of the random correction.
    """
    a, values = average(rounds[0], row, head)
    first = a @ values
    output, d = first, values.shape[1]
    for r in rounds[1:]:
        gate = r.gate
        assert gate is not None
        later, corrections = average(r, row, head)
        of_head = gate.expand_as(r.correction)[row, :, head * d : (head + 1) * d]  # (T, dh)
        output = output + of_head.cpu().double().numpy() * (later @ corrections)
    noise = draw.standard_normal(first.shape)
    size = np.linalg.norm(output - first, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
    found = {FIRST_ESTIMATE: first}
    if len(rounds) > 1:
        twicing = first + a @ (values - first)
        found |= {BOOSTED_OUTPUT: output, TWICING: twicing, RANDOM_CORRECTION: first + size * noise}
    return values, found


def hull_study(
    model: nn.Module, rows: Tensor, *, pairs: int = PAIRS, seed: int = 0, progress: Progress | None = None
) -> list[LayerHull]:
    """Measure outputs of heads against the hull of the values they see, at random positions.

    Args:
        model: a model of softmax layers in head space.
        rows: sequences (n, T + 1), of which SEQUENCES are used.
        pairs: (position, head) pairs per layer, for the paper's positions and again for those beyond head_dim.
        seed: of the pairs and of the random corrections.
        progress: called with the fraction done.

    Raises:
        InputError: the distance is not defined for one of the model's layers.
    """
    layers, length = head_space_layers(model), rows.shape[1] - 1
    draw = np.random.default_rng(seed)
    rows = rows[np.sort(draw.permutation(len(rows))[:SEQUENCES])]
    samples = [LayerSample(layer.config.d_head, layer.config.n_heads, length) for layer in layers]
    device = next(model.parameters()).device
    for n, row in enumerate(rows):
        count = pairs * (n + 1) // len(rows) - pairs * n // len(rows)  # this row's part of the pairs
        with torch.no_grad(), capture(model) as traces:
            model(row[None, :-1].to(device))
        for sample, trace in zip(samples, traces.values(), strict=True):
            sample.add(trace.rounds, count, draw)
        if progress is not None:
            progress((n + 1) / len(rows))
    return [sample.result(i) for i, sample in enumerate(samples)]


class LayerSample:
    """The pairs sampled in one layer, for two ranges of visible values."""

    def __init__(self, head_dim: int, n_heads: int, length: int):
        self.head_dim, self.n_heads = head_dim, n_heads
        self.paper = RangeSample(1, min(MOST_VISIBLE, length))
        self.beyond = RangeSample(head_dim + 1, length)

    def add(self, rounds: Sequence[RoundTrace], count: int, draw: np.random.Generator) -> None:
        """Measure ``count`` pairs of each range in the first sequence of a trace."""
        for sample in (self.paper, self.beyond):
            if sample.first > sample.last:
                continue  # no position sees so many values
            heads = draw.integers(self.n_heads, size=count)
            visible = draw.integers(sample.first, sample.last + 1, count)
            for head in np.unique(heads):
                values, outputs = head_outputs(rounds, 0, int(head), draw)
                for t in visible[heads == head]:
                    sample.add(int(t), values, outputs, few=bool(t <= self.head_dim))

    def result(self, layer: int) -> LayerHull:
        return LayerHull(
            layer=layer, head_dim=self.head_dim, paper=self.paper.result(), beyond_head_dim=self.beyond.result() or None
        )


class RangeSample:
    """Outputs measured at positions that see between ``first`` and ``last`` values."""

    def __init__(self, first: int, last: int):
        self.first, self.last = first, last
        self.measured: dict[str, list[Measured]] = {}

    def add(self, t: int, values: np.ndarray, outputs: dict[str, np.ndarray], *, few: bool) -> None:
        """Measure every kind of output at the position that sees ``t`` values."""
        for kind, output in outputs.items():
            y = output[t - 1]
            distance, gap = hull_distance(y, values[:t])
            relative = distance / max(float(np.linalg.norm(y)), 1e-300)
            self.measured.setdefault(kind, []).append(Measured(distance, relative, gap, float(few)))

    def result(self) -> dict[str, HullDistances]:
        return {kind: summary(self.measured[kind]) for kind in OUTPUT_KINDS if kind in self.measured}


def summary(measured: list[Measured]) -> HullDistances:
    """Summarise the measurements of one kind of output."""
    distance, relative, gap, few = np.asarray(measured).T
    return HullDistances(
        n=len(distance),
        up_to_head_dim=float(few.mean()),
        mean=float(distance.mean()),
        relative=float(relative.mean()),
        largest_relative=float(relative.max()),
        outside=float((relative > OUTSIDE).mean()),
        largest_gap=float(gap.max()),
        deciles=np.quantile(distance, np.linspace(0, 1, 11)).tolist(),
    )
