"""Base learners: what one round does with its input. Softmax attention here; every other learner refines it.

    Attn(z) = softmax(beta W_Q z (W_K s)^T) W_V s        s: where keys and values come from, z itself by default

A learner projects (``project``), attends (``attend``) and leaves masks, caches, kernels and traces to the ``RoundCall``
it is given. A new variant is a subclass in a file of its own, entered in ``LEARNERS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.attention.cache import LayerCache
from boosted_attention.attention.config import LayerConfig
from boosted_attention.attention.kernels import Kernel, Map
from boosted_attention.attention.masks import Mask
from boosted_attention.attention.rotary import rotary_angles, rotate
from boosted_attention.attention.trace import RoundTrace

Pair = tuple[Tensor, Tensor]  # (key, value)
Angles = tuple[Tensor, Tensor]  # (cos, sin)

LEARNED_TEMPERATURE_START = 2.0  # the inverse temperature the paper's retrieval task starts from


@dataclass
class RoundCall:
    """What one round of one forward call may use."""

    index: int
    kernel: Kernel
    mask: Mask
    dropout: float
    positions: Tensor | None = None  # (T,) or (B, T), with rotary embedding only
    cache: LayerCache | None = None
    trace: RoundTrace | None = None

    def map(self, q: Tensor, k: Tensor, scale: float) -> Map:
        """v -> softmax(scale q k^T + mask) v, (B, H, T, dv), with this call's kernel, mask and dropout."""
        apply, weights = self.kernel(q, k, self.mask, scale, self.dropout)
        if self.trace is not None:
            assert weights is not None, "a traced call runs on the explicit kernel"
            self.trace.q, self.trace.scale, self.trace.weights = q, scale, weights
        return apply

    def attention(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """The map of q and k, applied to v once."""
        return self.map(q, k, scale)(v)

    def remember(self, slot: str, new: Tensor) -> Tensor:
        """What the slot holds of past positions with ``new`` behind it; without a cache, ``new`` itself."""
        return new if self.cache is None else self.cache.append(f"{slot}{self.index}", new)

    def note(self, **tensors: Tensor) -> None:
        """Leave a tensor of this learner's own in the trace."""
        if self.trace is not None:
            self.trace.extra.update(tensors)


class SoftmaxLearner(nn.Module):
    """Multi-head softmax attention: one round of the paper, and all of the standard layer."""

    needs_square_map = False  # True: queries and keys must be the same positions, so no memory=
    allows_dropout = True
    fused_score_passes = 1  # how often the fused kernel computes the scores of one map

    def __init__(self, config: LayerConfig, index: int):
        super().__init__()
        self.d_head = config.d_head
        self.n_heads = config.n_heads
        self.n_kv_heads = config.kv_heads[index]
        self.rope_theta = config.rope_theta
        q, k, v = self.projection_widths()
        d, kdim, vdim = config.d_model, config.kdim or config.d_model, config.vdim or config.d_model
        self.split_sizes = (q, k, v)
        self.qkv = self.q = self.k = self.v = None
        if not config.reads_own_kv(index):
            self.q = nn.Linear(d, q, bias=config.bias)
        elif kdim == vdim == d:
            self.qkv = nn.Linear(d, q + k + v, bias=config.bias)  # rows q, k, v; heads contiguous
        else:
            self.q = nn.Linear(d, q, bias=config.bias)
            self.k = nn.Linear(kdim, k, bias=config.bias)
            self.v = nn.Linear(vdim, v, bias=config.bias)
        self.scale = 1.0 if config.temperature == "learned" else config.temperature or 1 / math.sqrt(self.d_head)
        self.log_beta = None
        if config.temperature == "learned":
            self.log_beta = nn.Parameter(torch.tensor(math.log(LEARNED_TEMPERATURE_START)))
        self.out = nn.Linear(config.d_inner, d, bias=config.bias) if config.space == "output" else None

    def projection_widths(self) -> tuple[int, int, int]:
        """Output widths of the query, key and value projections."""
        kv = self.n_kv_heads * self.d_head
        return self.n_heads * self.d_head, kv, kv

    def forward(self, z: Tensor, kv: Pair | None, source: Pair, call: RoundCall) -> tuple[Tensor, Pair]:
        """One round: (B, T, D) -> estimate (B, T, D) and the keys and values it read, for rounds that share them.

        ``kv`` are another round's keys and values; without them they are projected from ``source``, (key, value).
        """
        angles = self.rotary(call.positions, z.dtype)
        if kv is None:
            q, k, v = self.project(z, *source, angles)
            kv = call.remember("k", k), call.remember("v", v)
        else:
            q = self.project_query(z, angles)
        if call.trace is not None:
            call.trace.k, call.trace.v = kv
        y = self.attend(z, q, *kv, call)  # (B, T, H*dh)
        return (y if self.out is None else self.out(y)), kv

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        """From projected heads (B, H, S, dh) to concatenated outputs (B, T, H*dh); z is the round's own input."""
        return merge_heads(call.attention(q, k, v, self.scale))

    def project(self, z: Tensor, key: Tensor, value: Tensor, angles: Angles | None) -> tuple[Tensor, Tensor, Tensor]:
        """q from z, k and v from where they come from, each split into heads (B, H, S, dh)."""
        if self.qkv is not None and key is z and value is z:
            q, k, v = self.qkv(z).split(self.split_sizes, dim=-1)
            q = self._query_heads(q, angles)
        else:
            q = self.project_query(z, angles)
            k, v = self._affine("k", key), self._affine("v", value)
        k = split_heads(k, self.d_head)
        return q, (k if angles is None else rotate(k, angles)), self.split_values(v)

    def project_query(self, z: Tensor, angles: Angles | None) -> Tensor:
        return self._query_heads(self._affine("q", z), angles)

    def _query_heads(self, q: Tensor, angles: Angles | None) -> Tensor:
        q = split_heads(q, self.d_head)  # (B, H, T, dh)
        q = q if self.log_beta is None else q * self.log_beta.exp().to(q.dtype)
        return q if angles is None else rotate(q, angles)

    def split_values(self, v: Tensor) -> Tensor:
        """Values into heads; a learner may have fewer and wider ones."""
        return split_heads(v, self.d_head)

    def scores_flops(self, n_keys: int) -> int:
        """Multiplications and additions of one query's scores, q k^T."""
        return 2 * self.split_sizes[0] * n_keys

    def map_flops(self, n_keys: int) -> int:
        """What one query costs beyond the linear layers applied once: scores, and weights times values."""
        return self.scores_flops(n_keys) + 2 * self.split_sizes[0] * n_keys

    def fused_extra_flops(self, n_keys: int) -> int:
        """Scores that the fused kernel computes again, because it cannot hand out its weights."""
        return (self.fused_score_passes - 1) * self.scores_flops(n_keys)

    def query_weight(self) -> Tensor:
        """W_Q, (H*dh, D)."""
        return self._rows("q")[0]

    def rotary(self, positions: Tensor | None, dtype: torch.dtype) -> Angles | None:
        if self.rope_theta is None or positions is None:
            return None
        return rotary_angles(positions, self.d_head, self.rope_theta, dtype)

    def _affine(self, part: str, t: Tensor) -> Tensor:
        return functional.linear(t, *self._rows(part))

    def _rows(self, part: str) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of one of q, k, v, wherever they are stored."""
        if self.qkv is None:
            linear = {"q": self.q, "k": self.k, "v": self.v}[part]
            assert linear is not None
            return linear.weight, linear.bias
        i = "qkv".index(part)
        start = sum(self.split_sizes[:i])
        rows = slice(start, start + self.split_sizes[i])
        return self.qkv.weight[rows], None if self.qkv.bias is None else self.qkv.bias[rows]


LEARNERS: dict[str, Callable[..., SoftmaxLearner]] = {"softmax": SoftmaxLearner}


def split_heads(t: Tensor, d_head: int) -> Tensor:
    """(B, S, H*dh) -> (B, H, S, dh)."""
    return t.unflatten(-1, (-1, d_head)).transpose(1, 2)


def merge_heads(t: Tensor) -> Tensor:
    """(B, H, T, dh) -> (B, T, H*dh)."""
    return t.transpose(1, 2).flatten(2)
