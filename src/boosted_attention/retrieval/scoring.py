"""Scores of models and predictors on the retrieval task, and how far each round's estimate still is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.trace import capture
from boosted_attention.documentation import documented
from boosted_attention.retrieval.predictors import PREDICTORS
from boosted_attention.retrieval.task import RetrievalTask, Score
from boosted_attention.retrieval.training import evaluate, test_set

DISTANCE_QUERIES = 2048  # queries of the test set over which distances are averaged


@documented
@dataclass(frozen=True, kw_only=True)
class Baselines:
    """Scores of the predictors that need no training, on one test set; the fields are the names in PREDICTORS."""

    chance: Score  # Score of the mean pattern, predicted for every query.
    raw: Score  # Score of the query itself as the prediction.
    map: Score  # Score of the pattern nearest to the query.
    bayes: Score  # Score of the posterior mean.


@documented
@dataclass(frozen=True, kw_only=True)
class RoundDistances:
    """Averages after one round of a trained model."""

    to_query: float  # Distance to the query, ||x - F_m||, which boosting on the residual would reduce.
    to_pattern: float  # Distance to the pattern, ||p - F_m||, which training reduces.
    cosine: float  # Cosine of the correction with the residual the round saw.
    gate: float | None  # Mean gate of the round; None in round 0.


@documented
@dataclass(frozen=True, kw_only=True)
class RetrievalResult(Score):
    """The score of one trained model, with the distances after each of its rounds."""

    rounds: list[RoundDistances]  # Distances after each round.


def score_baselines(task: RetrievalTask, size: int) -> Baselines:
    """Score chance, the raw query, MAP and Bayes.

    Args:
        task: patterns and noise.
        size: queries of the test set.
    """
    return Baselines(**{name: evaluate(make(task), task, size) for name, make in PREDICTORS.items()})


def score_trained(layer: AttentionLayer, task: RetrievalTask, size: int) -> RetrievalResult:
    """Score a trained layer, and measure its estimate after each round.

    Args:
        layer: a layer that attends to the patterns as its memory.
        task: patterns and noise.
        size: queries of the test set.
    """
    memory = task.patterns()[None]  # (1, K, d)
    found = evaluate(lambda x: layer(x[None], memory=memory)[0], task, size)
    return RetrievalResult(accuracy=found.accuracy, mse=found.mse, rounds=round_distances(layer, task))


@torch.no_grad()
def round_distances(layer: AttentionLayer, task: RetrievalTask) -> list[RoundDistances]:
    """Measure the partial sums F_m: their distance to the query and to the pattern behind it."""
    x, index = test_set(task, DISTANCE_QUERIES)
    with capture(layer) as traces:
        layer(x[None], memory=task.patterns()[None])
    target = task.patterns()[index]
    found = []
    for trace in traces[""].rounds:
        estimate, c, r = trace.estimate[0], trace.correction[0], trace.residual[0]  # (n, d)
        gate = trace.gate
        found.append(
            RoundDistances(
                to_query=float((x - estimate).norm(dim=-1).mean()),
                to_pattern=float((target - estimate).norm(dim=-1).mean()),
                cosine=float(torch.cosine_similarity(c, r, dim=-1).mean()),
                gate=None if gate is None else mean_gate(gate),
            )
        )
    return found


def mean_gate(gate: Tensor) -> float:
    """The mean of a gate (B, T, D), or of one number for all positions (B, T, 1), for which float64 is exact."""
    return float(gate.mean() if gate.shape[-1] > 1 else gate.double().mean())
