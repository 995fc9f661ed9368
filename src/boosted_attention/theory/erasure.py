"""Proposition 1: one step of retrieval lands in the hull of the patterns and forgets what is orthogonal to them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from boosted_attention.analysis.hull import hull_distance
from boosted_attention.retrieval.iteration import accuracy_after, fixed_points
from boosted_attention.retrieval.predictors import PREDICTORS
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import evaluate
from boosted_attention.theory.finding import Finding, gaussian, generator


def retrieve(x: Tensor, patterns: Tensor, beta: float) -> Tensor:
    """T(xi) = X softmax(beta X^T xi) for queries (n, d) and patterns (K, d)."""
    return (beta * x @ patterns.T).softmax(dim=-1) @ patterns


def unit_patterns(n: int, d: int, draw: torch.Generator) -> Tensor:
    """Draw n patterns of norm 1, (n, d)."""
    return functional.normalize(gaussian(n, d, draw=draw), dim=-1)


def stays_in_hull(seed: int) -> Finding:
    """Proposition 1a: T(xi) lies in conv(X)."""
    draw = generator(seed)
    patterns, x = unit_patterns(8, 16, draw), gaussian(100, 16, draw=draw)

    def largest(points: Tensor) -> float:
        return max(hull_distance(y.numpy(), patterns.numpy())[0] for y in points)

    inside = largest(retrieve(x, patterns, 4.0))
    moved = retrieve(x, patterns, 4.0) + 0.01 * gaussian(100, 16, draw=draw)
    escaped = [hull_distance(y.numpy(), patterns.numpy())[0] > 1e-9 for y in moved]
    return Finding(
        name="1a",
        paper="The output of a retrieval step lies in the convex hull of the patterns.",
        measured={"largest distance": inside},
        holds=inside < 1e-9,
        condition="Leaving the hull is nothing special where it has no volume: any perturbation does it.",
        counter={"share of outputs outside after random noise of size 0.01": sum(escaped) / len(escaped)},
        counter_holds=all(escaped),
    )


def forgets_the_orthogonal_part(seed: int) -> Finding:
    """Proposition 1b: T(xi) = T(P xi), with P the projection onto the span of the patterns."""
    draw = generator(seed)

    def split(n_patterns: int) -> tuple[float, float]:
        patterns, x = unit_patterns(n_patterns, 16, draw), gaussian(100, 16, draw=draw)
        basis = torch.linalg.svd(patterns, full_matrices=False).Vh[: torch.linalg.matrix_rank(patterns)]
        parallel = x @ basis.T @ basis
        change = (retrieve(x, patterns, 4.0) - retrieve(parallel, patterns, 4.0)).abs().max()
        return float(change), float((x - parallel).norm(dim=-1).mean() / x.norm(dim=-1).mean())

    change, share = split(8)
    _, nothing = split(24)
    return Finding(
        name="1b",
        paper="The part of the query orthogonal to the patterns has no influence on the output.",
        measured={"largest change when it is removed": change, "share of the query's norm it has": share},
        holds=change < 1e-12,
        condition="Vacuous when the patterns span the space: there is no orthogonal part.",
        counter={"share of the query's norm with 24 patterns in 16 dimensions": nothing},
        counter_holds=nothing < 1e-12,
    )


def fixed_points_in_hull(seed: int) -> Finding:
    """Proposition 1c: a fixed point xi = T(xi) lies in conv(X)."""
    draw = generator(seed)
    patterns = unit_patterns(8, 16, draw)
    x = gaussian(50, 16, draw=draw)
    for _ in range(2000):
        x = retrieve(x, patterns, 8.0)
    step = float((retrieve(x, patterns, 8.0) - x).norm(dim=-1).max())
    distance = max(hull_distance(y.numpy(), patterns.numpy())[0] for y in x)
    task = RetrievalTask(d=64, n_patterns=16)
    return Finding(
        name="1c",
        paper="Every fixed point lies in the convex hull of the patterns.",
        measured={"largest step left": step, "largest distance of a fixed point": distance},
        holds=step < 1e-9 and distance < 1e-9,
        condition="It does not say how many there are: from a high enough beta each pattern keeps its own.",
        counter={f"fixed points of 16 patterns at beta {b}": fixed_points(task, b) for b in (2.0, 8.0)},
        counter_holds=fixed_points(task, 2.0) == 1 and fixed_points(task, 8.0) == 16,
    )


def contraction_erases_within_a_region(seed: int) -> Finding:
    """Remark on Proposition 1: T contracts within a region, and erases what told queries apart."""
    draw = generator(seed)
    patterns = unit_patterns(8, 64, draw)
    a, b = (patterns[0] + 0.05 * gaussian(2, 64, draw=draw))[:, None]
    before = float((a - b).norm())
    for _ in range(200):
        a, b = retrieve(a, patterns, 16.0), retrieve(b, patterns, 16.0)
    after = float((a - b).norm())
    task = RetrievalTask(d=64, n_patterns=16, sigma=0.5)
    kept = accuracy_after(task, 8.0, 1000, 4000, init="identity")
    bayes = evaluate(PREDICTORS["bayes"](task), task, 4000).accuracy
    return Finding(
        name="1-remark",
        paper="Iteration brings queries of the same region to the same point and so erases what told them apart.",
        measured={"distance of two queries before": before, "after 200 steps": after},
        holds=after < 1e-9 < before,
        condition="What is erased is the noise as well: which pattern it was is kept, and accuracy with it.",
        counter={"accuracy after 1,000 steps at beta 8": kept, "Bayes accuracy": bayes},
        counter_holds=kept > bayes - 2.0,
    )
