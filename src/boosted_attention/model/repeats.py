"""Repeated blocks: the same blocks again and again, equally often for all tokens or as often as each token decides.

    none     h_n = blocks(h_{n-1}), n = 1 .. n_repeats; predictions from the last state
    act      predictions from the mean of a token's states, as ``attention/halting.py`` weighs them. A token that has
             stopped is copied forward: every later block reads it as it was, for its own keys and values and other
             tokens' queries, and leaves it as it is. Repeats have no embedding of their number, which the published
             model adds to the stream before each
    ponder   a distribution over the states, of which one is predicted from: ``model/pondernet.py``

Every step runs for all tokens: what has stopped is still read, and a cache needs its keys and values at each step. A
token's state depends on earlier tokens alone, so that decoding through a cache is exact.

Reference: Dehghani et al., "Universal Transformers", ICLR 2019, https://arxiv.org/abs/1807.03819
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from boosted_attention.attention.halting import Clock, HaltingUnit

Blocks = Callable[[Tensor, int, Tensor | None], Tensor]
"""All blocks once: (stream (B, T, D), number of the repeat, tokens (B, T) that run or None for all) -> stream."""


class Weighted(NamedTuple):
    """States that are all predicted from, in training."""

    states: Tensor  # (N, B, T, D)
    weights: Tensor  # (N, B, T), which sum to one over N


class Thought(NamedTuple):
    """What repeated blocks made of the embeddings."""

    state: Tensor  # (B, T, D), which predictions are made from
    cost: Tensor | None = None  # (B, T), which training adds to each token's loss, times ponder_cost
    taken: Tensor | None = None  # (B, T), repeats until the token stopped
    expected: Weighted | None = None  # where training predicts from several states at once


class PlainRepeats(nn.Module):
    """Blocks that all tokens pass equally often.

    Args:
        n_repeats: how often.
    """

    def __init__(self, n_repeats: int):
        super().__init__()
        self.n_repeats = n_repeats

    def forward(self, h: Tensor, blocks: Blocks) -> Thought:
        for n in range(self.n_repeats):
            h = blocks(h, n, None)
        return Thought(h)


class AdaptiveRepeats(nn.Module):
    """Blocks that each token passes as often as it decides, at most ``n_repeats`` times.

    Args:
        n_repeats: the most.
        d_model: width of the stream.
    """

    def __init__(self, n_repeats: int, d_model: int):
        super().__init__()
        self.n_repeats = n_repeats
        self.unit = HaltingUnit(d_model)

    def forward(self, h: Tensor, blocks: Blocks) -> Thought:
        clock = Clock(h.new_zeros(h.shape[:2], dtype=torch.promote_types(h.dtype, torch.float32)))
        running, mean = None, torch.zeros_like(h)
        for n in range(1, self.n_repeats + 1):
            h = blocks(h, n - 1, running)
            p = self.unit(h).sigmoid() if n < self.n_repeats else None  # (B, T)
            weight, running = clock.tick(p)
            mean = mean + weight.to(h.dtype)[..., None] * h
        return Thought(mean, cost=clock.ponder, taken=clock.steps)
