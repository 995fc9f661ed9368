"""PonderNet on the retrieval task: one attention step that is repeated, and a distribution over how often.

    h_0 = 0;    h_n = Attn(x + h_{n-1});    lambda_n = sigmoid(w . h_n + b)
    loss = sum_n p_n ||target - h_n||^2 + beta KL(p || g)

Keys and values are the patterns. The query enters every step, since a step that sees its own answer alone forgets it. p
and g are those of ``model/pondernet.py``; a query is answered by its likeliest step.

Reference: Banino et al., "PonderNet: Learning to Ponder", 2021, https://arxiv.org/abs/2107.05407
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from boosted_attention.attention.halting import HaltingUnit
from boosted_attention.documentation import documented
from boosted_attention.model.pondernet import divergence, log_halting
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.task import RetrievalTask, Score
from boosted_attention.retrieval.training import evaluate, test_set


@documented
@dataclass(frozen=True, kw_only=True)
class PonderResult(Score):
    """The score of one trained model, and how long it ponders."""

    steps: float  # Mean number of the step that answers.


class Pondered(NamedTuple):
    """The answers of all steps, the probability that each is given, and what pondering costs; ... are seeds."""

    answers: Tensor  # (..., N, n, d)
    log_p: Tensor  # (..., N, n)
    cost: Tensor  # (..., n)

    def loss(self, target: Tensor) -> Tensor:
        """Return the expected squared distance from the targets (..., n, d), plus the cost: (...)."""
        distances = (self.answers - target[..., None, :, :]).square().sum(dim=-1)  # (..., N, n)
        return ((self.log_p.exp() * distances).sum(dim=-2) + self.cost).mean(dim=-1)


class PonderingAttention(nn.Module):
    """One-step attention that is applied up to ``n_steps`` times, with a halting probability behind each.

    Args:
        d: dimension of the patterns.
        n_steps: the most.
        prior: lambda_p, the probability of the geometric prior.
        beta: weight of the divergence from it.
    """

    def __init__(self, d: int, n_steps: int, prior: float, beta: float):
        super().__init__()
        self.n_steps, self.prior, self.beta = n_steps, prior, beta
        self.step = RetrievalModel().build(d)
        self.unit = HaltingUnit(d, bias_start=math.log(prior / (1 - prior)))

    def forward(self, x: Tensor, memory: Tensor) -> Pondered:
        """Answer queries (1, n, d) from the patterns (1, K, d)."""
        h, answers = torch.zeros_like(x), []
        for _ in range(self.n_steps):
            h = self.step(x + h, memory=memory)  # (1, n, d)
            answers.append(h[0])
        log_p = log_halting(torch.stack([self.unit(answer) for answer in answers[:-1]]))  # (N, n)
        return Pondered(torch.stack(answers), log_p, self.beta * divergence(log_p, self.prior))

    def likeliest(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return the answer of each query's likeliest step, (n, d), and its number from 1, (n,)."""
        found = self(x[None], memory)
        step = found.log_p.argmax(dim=0)  # (n,)
        return found.answers[step, torch.arange(len(x))], step + 1


@torch.no_grad()
def score_pondering(model: PonderingAttention, task: RetrievalTask, size: int) -> PonderResult:
    """Score a trained model by its likeliest answers.

    Args:
        model: the model.
        task: patterns and noise.
        size: queries of the test set.
    """
    memory = task.patterns()[None]  # (1, K, d)
    found = evaluate(lambda x: model.likeliest(x, memory)[0], task, size)
    _, steps = model.likeliest(test_set(task, size)[0], memory)
    return PonderResult(accuracy=found.accuracy, mse=found.mse, steps=float(steps.double().mean()))
