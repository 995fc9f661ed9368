"""Predictors that need no training, against which trained models are measured."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from boosted_attention.attention.layer import StandardAttention
from boosted_attention.retrieval.task import RetrievalTask

Predictor = Callable[[Tensor], Tensor]  # queries (n, d) -> predictions (n, d)


def identity_layer(d: int, beta: float) -> StandardAttention:
    """Build softmax attention with identity projections and inverse temperature beta: the Hopfield update."""
    layer = StandardAttention(d, 1, scale=beta, out_proj=False, bias=False).requires_grad_(False)
    layer.rounds[0].get_parameter("qkv.weight").copy_(torch.eye(d).repeat(3, 1))
    return layer


def bayes(task: RetrievalTask) -> Predictor:
    """Predict the posterior mean: a layer of this library with identity projections and beta = 1/sigma^2."""
    layer, memory = identity_layer(task.d, 1 / task.sigma**2), task.patterns()[None]
    return lambda x: layer(x[None], memory=memory)[0]


def maximum_a_posteriori(task: RetrievalTask) -> Predictor:
    """Predict the pattern nearest to the query."""
    patterns = task.patterns()
    return lambda x: patterns[torch.cdist(x, patterns).argmin(dim=-1)]


def raw_query(task: RetrievalTask) -> Predictor:
    """Predict the query itself, F = x. It decodes to MAP, though its squared error is that of the noise."""
    return lambda x: x


def chance(task: RetrievalTask) -> Predictor:
    """Predict the mean pattern for every query, the best constant in squared error."""
    mean = task.patterns().mean(dim=0)
    return lambda x: mean.expand_as(x)


PREDICTORS: dict[str, Callable[[RetrievalTask], Predictor]] = {
    "chance": chance,
    "raw": raw_query,
    "map": maximum_a_posteriori,
    "bayes": bayes,
}
