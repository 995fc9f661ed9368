"""Adaptive computation time: every token decides for itself how many steps it takes.

    p_n = sigmoid(w . s_n + b)                          s_n: the token's state behind step n
    N = the first n with p_1 + ... + p_n >= 1 - eps     at most the number of steps there are
    R = 1 - (p_1 + ... + p_{N-1})                       the remainder, which is the weight of step N
    y = p_1 s_1 + ... + p_{N-1} s_{N-1} + R s_N         weights that sum to one

The ponder cost N + R of a token is added to the training loss, times tau. N has no gradient; that of R makes the
earlier probabilities larger, until fewer steps are enough.

Reference: Graves, "Adaptive Computation Time for Recurrent Neural Networks", 2016, https://arxiv.org/abs/1603.08983
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

EPS = 0.01  # what may be left when a token stops: one step can then be enough
BIAS_START = 1.0  # a probability of 0.73: tokens stop early until training finds use for more steps


class HaltingUnit(nn.Module):
    """The logit of a token's halting probability, w . s + b: (..., D) -> (...); w starts at 0.

    Args:
        d: width of the state.
        bias_start: where b starts.
        device: device of the weights.
        dtype: dtype of the weights.
    """

    def __init__(self, d: int, bias_start: float = BIAS_START, device: Any = None, dtype: Any = None):
        super().__init__()
        self.bias_start = bias_start
        self.weight = nn.Parameter(torch.empty(d, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(1, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: the same probability for every state."""
        nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, self.bias_start)

    def forward(self, state: Tensor) -> Tensor:
        work = torch.promote_types(state.dtype, torch.float32)
        return (state.to(work) * self.weight.to(work)).sum(dim=-1) + self.bias.to(work)


class Step(NamedTuple):
    """What a step means for tokens of any shape: the weight of their state, and which of them take another step."""

    weight: Tensor  # of the state behind this step; zero for tokens that had stopped before
    running: Tensor  # bool: the tokens that go on


class Clock:
    """The sums of adaptive computation time over the steps of some tokens.

    Args:
        like: a tensor of the tokens' shape, such as (B, T), in the dtype of the sums.
    """

    def __init__(self, like: Tensor):
        self.total = torch.zeros_like(like)  # p_1 + ... so far
        self.steps = torch.zeros_like(like)  # N
        self.remainder = torch.zeros_like(like)  # R
        self.running = torch.ones_like(like, dtype=torch.bool)

    @property
    def ponder(self) -> Tensor:
        """N + R of every token."""
        return self.steps + self.remainder

    def tick(self, p: Tensor | None) -> Step:
        """Count a step of the tokens that run.

        Args:
            p: halting probability of the state behind the step; None for the last step that there is.
        """
        left = 1 - self.total
        stops = self.running if p is None else self.running & (self.total + p >= 1 - EPS)
        goes_on = self.running & ~stops
        self.steps = self.steps + self.running
        self.remainder = torch.where(stops, left, self.remainder)
        weight = torch.where(stops, left, torch.zeros_like(left))
        if p is not None:
            weight = torch.where(goes_on, p, weight)
            self.total = torch.where(goes_on, self.total + p, self.total)
        self.running = goes_on
        return Step(weight, goes_on)
