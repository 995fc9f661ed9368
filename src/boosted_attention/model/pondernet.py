"""PonderNet: halting as a distribution over the states of repeated blocks.

    lambda_n = sigmoid(w . h_n + b)                 the probability to stop at step n, if not before
    p_n = lambda_n prod_{j<n} (1 - lambda_j)        the last step takes what is left
    loss = sum_n p_n L_n + beta KL(p || g)          g_n ~ lambda_p (1 - lambda_p)^(n-1), summing to one over all steps

L_n is the loss of predicting from h_n. Outside of the training loss, predictions come from a token's likeliest step,
the n with the largest p_n: a function of the tokens so far, and so the same with a cache and without. A sampled step,
as in the paper, would be another one in each pass; the mean of the steps' predictions would be as exact, at the price
of n_repeats vocabulary projections per token. b starts where lambda is lambda_p.

Reference: Banino et al., "PonderNet: Learning to Ponder", 2021, https://arxiv.org/abs/2107.05407
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from boosted_attention.attention.halting import HaltingUnit
from boosted_attention.model.repeats import Blocks, Thought, Weighted


class PonderedRepeats(nn.Module):
    """Blocks that are repeated, and a distribution over how often.

    Args:
        n_repeats: the most.
        d_model: width of the stream.
        prior: lambda_p, the probability of the geometric prior.
    """

    def __init__(self, n_repeats: int, d_model: int, prior: float):
        super().__init__()
        self.n_repeats, self.prior = n_repeats, prior
        self.unit = HaltingUnit(d_model, bias_start=math.log(prior / (1 - prior)))

    def forward(self, h: Tensor, blocks: Blocks) -> Thought:
        states = []
        for n in range(self.n_repeats):
            h = blocks(h, n, None)
            states.append(h)
        held = torch.stack(states)  # (N, B, T, D)
        log_p = log_halting(torch.stack([self.unit(state) for state in states[:-1]]))  # (N, B, T)
        likeliest = log_p.argmax(dim=0)[None, ..., None].expand(1, *h.shape)  # (1, B, T, D)
        state = held.gather(0, likeliest)[0]  # (B, T, D)
        return Thought(state, cost=divergence(log_p, self.prior), expected=Weighted(held, log_p.exp()))


def log_halting(logits: Tensor) -> Tensor:
    """Return log p_n (N, ...) of the logits of lambda_1 .. lambda_{N-1}, (N - 1, ...)."""
    stay = logsigmoid(-logits).cumsum(dim=0)  # log prod_{j<=n} (1 - lambda_j)
    none = torch.zeros_like(stay[:1])
    return torch.cat([none, stay]) + torch.cat([logsigmoid(logits), none])


def divergence(log_p: Tensor, prior: float) -> Tensor:
    """Return KL(p || g), (N, ...) -> (...), g being the geometric distribution that ends at N."""
    n = torch.arange(log_p.shape[0], device=log_p.device, dtype=log_p.dtype)
    log_g = (n * math.log1p(-prior)).log_softmax(dim=0)  # (N,): the factor lambda_p is lost in the sum to one
    return (log_p.exp() * (log_p - log_g.view(-1, *[1] * (log_p.ndim - 1)))).sum(dim=0)
