"""Iterated retrieval without training: what survives of the query, by inverse temperature and number of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boosted_attention.attention.learners.hopfield import HopfieldAttention
from boosted_attention.documentation import documented
from boosted_attention.progress import Progress
from boosted_attention.retrieval.predictors import PREDICTORS, identity_layer
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import evaluate, seeded


def iterated(task: RetrievalTask, beta: float, n_steps: int, *, init: str, seed: int = 0) -> HopfieldAttention:
    """Build a layer that iterates retrieval.

    Args:
        task: its dimension.
        beta: inverse temperature.
        n_steps: steps of the iteration.
        init: "identity" for identity projections, "default" for a layer's usual initialisation.
        seed: of the default initialisation.
    """

    def make() -> HopfieldAttention:
        return HopfieldAttention(task.d, 1, n_steps=n_steps, tol=1e-7, scale=beta, out_proj=False, bias=False)

    layer = seeded(make, seed)
    assert isinstance(layer, HopfieldAttention)
    if init == "identity":
        layer.load_state_dict(identity_layer(task.d, beta).state_dict())
    return layer.requires_grad_(False)


def accuracy_after(task: RetrievalTask, beta: float, n_steps: int, size: int, *, init: str, seed: int = 0) -> float:
    """Accuracy in percent of ``iterated`` on ``size`` queries of the test set; the other arguments are its."""
    layer, memory = iterated(task, beta, n_steps, init=init, seed=seed), task.patterns()[None]
    return evaluate(lambda x: layer(x[None], memory=memory)[0], task, size).accuracy


def ends(task: RetrievalTask, beta: float, n_steps: int) -> Tensor:
    """Carry the K patterns themselves through n_steps of retrieval with identity projections: (K, d)."""
    layer, patterns = iterated(task, beta, n_steps, init="identity"), task.patterns()
    return layer(patterns[None], memory=patterns[None])[0]


def fixed_points(task: RetrievalTask, beta: float, n_steps: int = 1000, *, tol: float = 1e-3) -> int:
    """Count the distinct points the K patterns are carried to: K when each is kept, 1 when all collapse."""
    reached = ends(task, beta, n_steps)
    close = torch.cdist(reached, reached) <= tol  # (K, K)
    first = close.int().argmax(dim=-1)  # each end is named after the first pattern that shares it
    return int(first.unique().numel())


def contraction(task: RetrievalTask, beta: float) -> float:
    """Spectral radius of the update's Jacobian, beta X (diag(p) - p p^T) X^T, where the patterns rest; the largest."""
    patterns, rest = task.patterns().double(), ends(task, beta, 1000).double()
    p = (beta * rest @ patterns.T).softmax(dim=-1)  # (K, K)
    centred = patterns - (p @ patterns)[:, None]  # (K, K, d): pattern j around the mean at rest i
    jacobian = beta * torch.einsum("ij,ijd,ije->ide", p, centred, centred)
    return float(torch.linalg.eigvalsh(jacobian).max())


def critical_beta(task: RetrievalTask, *, low: float = 0.5, high: float = 32.0, n_steps: int = 1000) -> float:
    """Find by bisection the smallest inverse temperature at which every pattern keeps a fixed point of its own."""
    for _ in range(12):
        middle = (low + high) / 2
        if fixed_points(task, middle, n_steps) == task.n_patterns:
            high = middle
        else:
            low = middle
    return high


@documented
@dataclass(frozen=True, kw_only=True)
class TemperatureMap:
    """What iterated retrieval keeps: rows are inverse temperatures, columns numbers of steps."""

    identity: list[list[float]]  # Accuracy in percent with identity projections, (betas, steps).
    default: list[list[dict[int, float]]]  # Accuracy in percent with default initialisations, by seed, (betas, steps).
    fixed_points: list[list[int]]  # Number of distinct points that the patterns are carried to, (betas, steps).
    contraction: list[float]  # Largest spectral radius of the update's Jacobian where the patterns rest, (betas,).
    critical_beta: float  # Smallest inverse temperature at which every pattern keeps a fixed point of its own.
    bayes: float  # Accuracy in percent of the Bayes predictor.


def temperature_map(
    task: RetrievalTask,
    betas: Sequence[float],
    steps: Sequence[int],
    seeds: Sequence[int],
    size: int,
    *,
    progress: Progress = lambda fraction: None,
) -> TemperatureMap:
    """Measure iterated, untrained retrieval over inverse temperatures and numbers of steps.

    Args:
        task: patterns and noise.
        betas: inverse temperatures.
        steps: numbers of steps.
        seeds: seeds of the default initialisation.
        size: queries of the test set.
        progress: called with the fraction done.
    """
    identity, default, kept, factors = [], [], [], []
    for i, beta in enumerate(betas):
        identity.append([accuracy_after(task, beta, n, size, init="identity") for n in steps])
        default.append(
            [{seed: accuracy_after(task, beta, n, size, init="default", seed=seed) for seed in seeds} for n in steps]
        )
        kept.append([fixed_points(task, beta, n) for n in steps])
        factors.append(contraction(task, beta))
        progress((i + 1) / (len(betas) + 1))
    return TemperatureMap(
        identity=identity,
        default=default,
        fixed_points=kept,
        contraction=factors,
        critical_beta=critical_beta(task),
        bayes=evaluate(PREDICTORS["bayes"](task), task, size).accuracy,
    )
