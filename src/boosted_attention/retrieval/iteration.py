"""What iterating retrieval keeps of the query: the map from inverse temperature and steps to what survives."""

from __future__ import annotations

import torch
from torch import Tensor

from boosted_attention.attention.learners.hopfield import HopfieldAttention
from boosted_attention.retrieval.predictors import identity_layer
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import evaluate, seeded


def iterated(task: RetrievalTask, beta: float, n_steps: int, *, init: str, seed: int = 0) -> HopfieldAttention:
    """Retrieval of n_steps at inverse temperature beta: identity projections, or a default initialisation."""

    def make() -> HopfieldAttention:
        return HopfieldAttention(task.d, 1, n_steps=n_steps, tol=1e-7, scale=beta, out_proj=False, bias=False)

    layer = seeded(make, seed)
    assert isinstance(layer, HopfieldAttention)
    if init == "identity":
        layer.load_state_dict(identity_layer(task.d, beta).state_dict())
    return layer.requires_grad_(False)


def accuracy_after(task: RetrievalTask, beta: float, n_steps: int, size: int, *, init: str, seed: int = 0) -> float:
    layer, memory = iterated(task, beta, n_steps, init=init, seed=seed), task.patterns()[None]
    return evaluate(lambda x: layer(x[None], memory=memory)[0], task, size).accuracy


def ends(task: RetrievalTask, beta: float, n_steps: int) -> Tensor:
    """Where n_steps of retrieval with identity projections carry the K patterns themselves, (K, d)."""
    layer, patterns = iterated(task, beta, n_steps, init="identity"), task.patterns()
    return layer(patterns[None], memory=patterns[None])[0]


def fixed_points(task: RetrievalTask, beta: float, n_steps: int = 1000, *, tol: float = 1e-3) -> int:
    """How many distinct points the K patterns are carried to: K when each is kept, 1 when all collapse."""
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
    """The smallest inverse temperature at which every pattern keeps a fixed point of its own, by bisection."""
    for _ in range(12):
        middle = (low + high) / 2
        if fixed_points(task, middle, n_steps) == task.n_patterns:
            high = middle
        else:
            low = middle
    return high
