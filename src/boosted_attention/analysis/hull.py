"""The exact distance of a point from a convex hull, by non-negative least squares; of a model's outputs from theirs.

    min_w ||V^T w - y||,  w >= 0,  sum w = 1

With A = [(V - y)^T; 1^T] and b = [0; 1], the minimiser of ||A w - b||^2 over w >= 0, scaled to sum 1, solves it: for
w = s u with sum u = 1 the objective is s^2 D(u)^2 + (s - 1)^2, whose minimum over s grows with D(u).

What the paper measures is the boosted output of a head against round 0's visible values. Few points in a space of many
dimensions have a hull of measure zero, so any generic change leaves it; hence the controls: the first estimate itself
(inside), twicing with the same map, a random correction of the same norm, and positions that see more values than a
head has dimensions.

Reference: "Gradient Boosting within a Single Attention Layer", Section 6.4 and Appendix E.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from boosted_attention.analysis.survey import Progress
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.trace import RoundTrace, capture, traced_layers
from boosted_attention.validation import require

PAIRS = 600  # (position, head) pairs per layer, as in the paper
SEQUENCES = 30  # they are drawn from
LONGEST = 64  # visible values at most, as in the paper
OUTSIDE = 1e-8  # of the output's norm; what is nearer is inside up to rounding
Measured = tuple[float, float, float, float]  # distance, relative, gap, whether few values are visible
KINDS = ("boosted", "first estimate", "twicing", "random correction")


def hull_distance(y: np.ndarray, points: np.ndarray) -> tuple[float, float]:
    """Distance of y (d,) to conv(points (n, d)), and the duality gap that certifies it.

    The gap bounds how far the squared distance may be off, relative to the farthest point's.
    """
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
    """The model's layers; raises ValueError where a head's output is no point among its values."""
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
    """One head's causal attention matrix (T, T) and values (T, dh), recomputed in float64 from its projections."""
    group = r.q.shape[1] // r.k.shape[1]
    q, k, v = (t[row, h].cpu().double() for t, h in ((r.q, head), (r.k, head // group), (r.v, head // group)))
    scores = r.scale * q @ k.T  # (T, T)
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(dim=-1).numpy(), v.numpy()


def head_outputs(
    rounds: Sequence[RoundTrace], row: int, head: int, draw: np.random.Generator
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Round 0's values of a head (T, dh), and what is measured against their hull, each (T, dh)."""
    a, values = average(rounds[0], row, head)
    first = a @ values
    output, d = first, values.shape[1]
    for r in rounds[1:]:
        assert r.gate is not None
        later, corrections = average(r, row, head)
        gate = r.gate.expand_as(r.correction)[row, :, head * d : (head + 1) * d].cpu().double().numpy()  # (T, dh)
        output = output + gate * (later @ corrections)
    noise = draw.standard_normal(first.shape)
    size = np.linalg.norm(output - first, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
    found = {"first estimate": first}
    if len(rounds) > 1:
        twicing = first + a @ (values - first)
        found |= {"boosted": output, "twicing": twicing, "random correction": first + size * noise}
    return values, found


def hull_study(
    model: nn.Module, rows: Tensor, *, pairs: int = PAIRS, seed: int = 0, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Distances per layer at the paper's positions, and at positions that see more values than dimensions."""
    layers = head_space_layers(model)
    draw = np.random.default_rng(seed)
    rows = rows[np.sort(draw.permutation(len(rows))[:SEQUENCES])]
    length = rows.shape[1] - 1
    found: list[dict[str, dict[str, list[Measured]]]] = [{} for _ in layers]
    for n, row in enumerate(rows):
        with torch.no_grad(), capture(model) as traces:
            model(row[None, :-1].to(next(model.parameters()).device))
        for trace, layer, kept in zip(traces.values(), layers, found, strict=True):
            for where, first, last in (
                ("paper", 1, min(LONGEST, length)),
                ("beyond head_dim", layer.config.d_head + 1, length),
            ):
                count = pairs * (n + 1) // len(rows) - pairs * n // len(rows)  # of this row
                if first > last:
                    continue  # no position sees so many
                heads, visible = draw.integers(layer.config.n_heads, size=count), draw.integers(first, last + 1, count)
                for head in np.unique(heads):
                    values, outputs = head_outputs(trace.rounds, 0, int(head), draw)
                    for t in visible[heads == head]:
                        for kind, output in outputs.items():
                            y = output[t - 1]
                            distance, gap = hull_distance(y, values[:t])
                            relative = distance / max(float(np.linalg.norm(y)), 1e-300)
                            one = (distance, relative, gap, float(t <= layer.config.d_head))
                            kept.setdefault(where, {}).setdefault(kind, []).append(one)
        if progress is not None:
            progress((n + 1) / len(rows))
    return [
        {"layer": i, "head_dim": layer.config.d_head, **{w: summary(k) for w, k in kept.items()}}
        for i, (layer, kept) in enumerate(zip(layers, found, strict=True))
    ]


def summary(kinds: dict[str, list[Measured]]) -> dict[str, Any]:
    described = {}
    for kind in KINDS:
        if kind in kinds:
            distance, relative, gap, few = np.asarray(kinds[kind]).T
            described[kind] = {
                "n": len(distance),
                "up_to_head_dim": float(few.mean()),  # share of pairs that see no more values than dimensions
                "mean": float(distance.mean()),
                "relative": float(relative.mean()),
                "largest_relative": float(relative.max()),
                "outside": float((relative > OUTSIDE).mean()),
                "largest_gap": float(gap.max()),
                "deciles": np.quantile(distance, np.linspace(0, 1, 11)).tolist(),
            }
    return described
