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

from boosted_attention.attention.masks import Mask

EPS = 0.01  # what may be left when a token stops: one step can then be enough
BIAS_START = 1.0  # a probability of 0.73: tokens stop early until training finds use for more steps


COPIES = 3  # times that a row's keys and values are read or written where rows are chosen, once where all stay


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
        self.total = torch.zeros_like(like)  # of the weights so far; 1 for tokens that have stopped
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
        weight = self.running * (left if p is None else torch.where(stops, left, p))
        self.steps = self.steps + self.running
        self.remainder = torch.where(stops, left, self.remainder)
        self.total = self.total + weight
        self.running = self.running & ~stops
        return Step(weight, self.running)


class PonderCosts:
    """The costs N + R, each (B, T), of layers that halt in one pass; no list, which FSDP would hand on as a copy."""

    def __init__(self):
        self.costs: list[Tensor] = []

    def add(self, cost: Tensor) -> None:
        """Add the cost of one layer."""
        self.costs.append(cost)

    def total(self) -> Tensor | None:
        """Return the sum over the layers; None if none of them halts."""
        return torch.stack(self.costs).sum(dim=0) if self.costs else None


class Tokens(NamedTuple):
    """Some tokens of a batch: equally many of each row, filled up with tokens that do not run.

    Rows without any are left out where that is worth a copy of the other rows' keys and values.
    """

    rows: Tensor  # (B',)
    places: Tensor  # (B', K)

    @classmethod
    def that(cls, run: Tensor, least: int) -> Tokens:
        """Return the tokens that run, of (B, T), in order; at least ``least`` of some row."""
        counts = run.sum(dim=1)
        most = int(counts.max()) if len(counts) else 0
        rows = counts.nonzero()[:, 0] if most else torch.arange(least, device=run.device)
        if most and len(rows) * COPIES > len(counts):
            rows = torch.arange(len(counts), device=run.device)
        first = run[rows].to(torch.int8).argsort(dim=1, descending=True, stable=True)  # (B', T)
        return cls(rows, first[:, : max(most, least)])

    def of(self, t: Tensor) -> Tensor:
        """Take the tokens out of (B, T, ...): (B', K, ...)."""
        return t[self.rows[:, None], self.places]

    def of_heads(self, t: Tensor) -> Tensor:
        """Take the tokens out of (B, H, T, X), in which every size may be 1: (B', H, K, X)."""
        t = t if t.shape[0] == 1 else t[self.rows]
        if t.shape[2] == 1:
            return t
        index = self.places[:, None, :, None].expand(-1, t.shape[1], -1, t.shape[3])
        return t.expand(len(self.rows), -1, -1, -1).gather(2, index)

    def of_mask(self, mask: Mask, n_keys: int) -> Mask:
        """Return the mask of these tokens' queries, where there are ``n_keys`` keys."""
        if mask.is_causal:
            return Mask(torch.arange(n_keys, device=self.places.device) <= self.places[:, None, :, None])
        tensor, dead = (None if t is None else self.of_heads(t) for t in (mask.tensor, mask.dead))
        return Mask(tensor, dead)


class RoundHalting:
    """Halting inside a layer: the rounds of the boosting loop are the steps, its estimates the states.

    Tokens that have stopped leave the loop, so that no queries are computed for them. Rows of a batch stay in step:
    each has as many tokens in the loop as the one with most. Others' halting changes how many tokens are multiplied at
    once, and so the last bits of a token's output, but nothing else. Where nothing may depend on values (torch.compile,
    vmap, the meta device), where dropout is drawn by place, and in traces, all stay to the end, with weights of zero.

    Args:
        unit: halting probability of an estimate.
        x: the layer's input (B, T, D).
        gathers: whether tokens leave the loop.
        ends: whether the loop ends when all have left it; not where later rounds have keys and values to remember.
    """

    def __init__(self, unit: nn.Module, x: Tensor, *, gathers: bool, ends: bool):
        self.unit, self.gathers, self.ends = unit, gathers, ends
        self.clock = Clock(x.new_zeros(x.shape[:2], dtype=torch.promote_types(x.dtype, torch.float32)))
        self.weights: list[Tensor] = []  # (B, T) of each round
        self.tokens: Tokens | None = None  # in the loop; None while all are
        self.mean: Tensor | None = None  # (B, T, D)
        self.ended = False  # whether all have left

    def go_on(self, x: Tensor, estimate: Tensor) -> tuple[Tensor, Tensor] | None:
        """Weigh the estimate, and return it and x for the tokens that take another round, (B', K, D) each, if any."""
        running = self._weigh(estimate, self.unit(estimate).sigmoid())
        if not self.gathers:
            return x, estimate
        run = running if self.tokens is None else self.tokens.of(running)  # (B', K)
        if bool(run.all()):
            return x, estimate
        # Parameters of a round that no token takes get gradients of zero, not none: other processes may have some.
        least = int(torch.is_grad_enabled())
        if self.ends and not least and not bool(run.any()):
            self.ended = True
            return None
        kept = Tokens.that(run, least)
        before, self.tokens = self.tokens, kept
        if before is not None:
            self.tokens = Tokens(before.rows[kept.rows], before.places[kept.rows[:, None], kept.places])
        return kept.of(x), kept.of(estimate)

    def finish(self, estimate: Tensor) -> Tensor:
        """Weigh the estimate of tokens that are still in the loop, and return the weighted mean of all, (B, T, D)."""
        if not self.ended:
            self._weigh(estimate, None)
        assert self.mean is not None
        return self.mean

    def _weigh(self, estimate: Tensor, p: Tensor | None) -> Tensor:
        """Add the estimate of the tokens in the loop to the mean, and return which tokens of (B, T) go on."""
        if p is not None and self.tokens is not None:
            p = torch.zeros_like(self.clock.total).index_put((self.tokens.rows[:, None], self.tokens.places), p)
        weight, running = self.clock.tick(p)
        self.weights.append(weight)
        if self.tokens is None or self.mean is None:
            share = weight.to(estimate.dtype)[..., None] * estimate
            self.mean = share if self.mean is None else self.mean + share
        else:
            share = self.tokens.of(weight).to(estimate.dtype)[..., None] * estimate
            place = (self.tokens.rows[:, None], self.tokens.places)
            self.mean = self.mean.index_put(place, share.to(self.mean.dtype), accumulate=True)  # autocast may mix them
        return running
