"""Softmax attention, the learner that most others refine.

    Attn(z) = softmax(beta W_Q z (W_K s)^T) W_V s        s: where keys and values come from, z itself by default

It projects (``project``), attends (``attend``) and leaves masks, caches, kernels and traces to the ``RoundCall`` it is
given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.attention.heads import merge_heads, split_heads
from boosted_attention.attention.learner import Learner, register_learner
from boosted_attention.attention.options import LayerOptions
from boosted_attention.attention.qk_norm import HeadNorm
from boosted_attention.attention.rotary import Angles, rotate
from boosted_attention.attention.round_call import KeyValue, Projected, RoundCall

LEARNED_SCALE_START = 2.0  # inverse temperature at which the paper's retrieval task starts


@register_learner("softmax")
class SoftmaxLearner(Learner):
    """Multi-head softmax attention: one round of the paper, and all of the standard layer.

        softmax(scale Q K^T + mask) V,    Q = W_Q z,  K = W_K s,  V = W_V s

    With the option ``qk_norm`` the heads of Q and K are normalised first.

    Args:
        options: the layer's options.
        index: the round.
        d_head: width of a head, if it is not the layer's.
    """

    has_map = True
    projects_query = True  # whether the round asks a question of its own, instead of round 0's
    n_maps = 1  # attention maps that a forward pass computes
    fused_score_passes = 1  # how often the fused kernel computes the scores of one map
    heads_per_value = 1  # key heads per value head: a learner may have fewer and wider value heads

    def __init__(self, options: LayerOptions, index: int, d_head: int | None = None):
        super().__init__(options, index, d_head)
        q, k, v = self.projection_widths()
        d, kdim, vdim = options.d_model, options.kdim or options.d_model, options.vdim or options.d_model
        self.split_sizes = (q, k, v)
        self.qkv = self.q = self.k = self.v = None
        if not options.reads_own_kv(index):
            self.q = nn.Linear(d, q, bias=options.bias, **options.factory) if self.projects_query else None
        elif kdim == vdim == d:
            self.qkv = nn.Linear(d, q + k + v, bias=options.bias, **options.factory)  # rows q, k, v; heads contiguous
        else:
            self.q = nn.Linear(d, q, bias=options.bias, **options.factory)
            self.k = nn.Linear(kdim, k, bias=options.bias, **options.factory)
            self.v = nn.Linear(vdim, v, bias=options.bias, **options.factory)
        self.q_norm = HeadNorm(self.d_head, **options.factory) if options.qk_norm and "q" in self.parts else None
        self.k_norm = HeadNorm(self.d_head, **options.factory) if options.qk_norm and "k" in self.parts else None
        self.scale = 1.0 if options.scale == "learned" else options.scale or 1 / math.sqrt(self.d_head)
        self.log_beta = None
        if options.scale == "learned" and self.projects_query:
            self.log_beta = nn.Parameter(torch.full((), math.log(LEARNED_SCALE_START), **options.factory))
        if options.space == "output":
            self.out_proj = nn.Linear(options.d_inner, d, bias=options.bias, **options.factory)

    def reset_parameters(self) -> None:
        """Draw all weights anew, in the order of construction; a learner with weights of its own adds those."""
        for module in (self.qkv, self.q, self.k, self.v, self.q_norm, self.k_norm, self.out_proj):
            if module is not None:
                module.reset_parameters()
        if self.log_beta is not None:
            nn.init.constant_(self.log_beta, math.log(LEARNED_SCALE_START))

    @torch.no_grad()
    def silence(self, part: str) -> None:
        """Set the part that makes the round add nothing to zero: "values" or "out_proj"."""
        weight, bias = self.rows("v") if part == "values" else linear_rows(self.out_proj)
        for t in (weight, bias):
            if t is not None:
                nn.init.constant_(t, 0.0)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the projections that the round has, of q, k and v."""
        if self.qkv is None and self.k is None:
            return ("q",) if self.projects_query else ()
        return ("q", "k", "v")

    def can_read(self, first: Learner) -> bool:
        """Return whether keys, values and, where they are shared, queries are as wide as those of round 0."""
        wanted = slice(1 if self.projects_query else 0, None)
        return (
            isinstance(first, SoftmaxLearner)
            and self.split_sizes[wanted] == first.split_sizes[wanted]
            and self.value_layout == first.value_layout
        )

    @property
    def value_layout(self) -> tuple[int, int]:
        """Number and width of the value heads."""
        width = self.heads_per_value * self.d_head
        return self.split_sizes[2] // width, width

    def projection_widths(self) -> tuple[int, int, int]:
        """Return the output widths of the query, key and value projections."""
        kv = self.n_kv_heads * self.d_head
        return self.n_heads * self.d_head, kv, kv

    def packed_matrices(self) -> dict[str, Callable[[Tensor], Sequence[Tensor]]]:
        """Return how the weight that holds W_Q, W_K and W_V divides into them; empty where each has its own."""
        return {} if self.qkv is None else {"qkv.weight": lambda weight: weight.split(self.split_sizes)}

    def forward(
        self, z: Tensor, shared: Projected | None, source: KeyValue, call: RoundCall
    ) -> tuple[Tensor, Projected]:
        """Project, attend, and in output space project again; arguments as in ``Learner.forward``."""
        if shared is None:
            q, k, v = self.project(z, *source, call)
            v = v if call.change_values is None else call.change_values(v)
            k, v = call.remember("k", k), call.remember("v", v)
        else:
            q, k, v = self.asked(z, shared, call), shared.k, shared.v
        if call.trace is not None:
            call.trace.k, call.trace.v = k, v
        y = self.attend(z, q, k, v, call)  # (B, T, H*dh)
        return (y if self.out_proj is None else self.out_proj(y)), Projected(q, k, v)

    def asked(self, z: Tensor, shared: Projected, call: RoundCall) -> Tensor:
        """Return the query of a round that shares keys and values (B, H, T, dh); z is the round's own input."""
        return self.project_query(z, call.angles)

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        """Turn projected heads (B, H, S, dh) into concatenated outputs (B, T, H*dh); z is the round's own input."""
        return merge_heads(call.attention(q, k, v, self.scale))

    def project(self, z: Tensor, key: Tensor, value: Tensor, call: RoundCall) -> tuple[Tensor, Tensor, Tensor]:
        """Project q from z, k from ``key`` and v from ``value``, each split into heads (B, H, S, dh)."""
        if self.qkv is not None and key is z and value is z:
            q, k, v = self.qkv(z).split(self.split_sizes, dim=-1)
            return self._query_heads(q, call.angles), *self._key_value_heads(k, v, call)
        return self.project_query(z, call.angles), *self.project_key_value(key, value, call)

    def project_key_value(self, key: Tensor, value: Tensor, call: RoundCall) -> KeyValue:
        """Project k from ``key`` and v from ``value``, each split into heads (B, H_kv, S, dh)."""
        return self._key_value_heads(self._affine("k", key), self._affine("v", value), call)

    def mixed_keys(self, k: Tensor, call: RoundCall) -> Tensor:
        """Return the keys (B, H_kv, T, dh) as they are turned and cached; a learner may mix them over positions."""
        return k

    def project_query(self, z: Tensor, angles: Angles | None) -> Tensor:
        """Project and split the query, (B, T, D) -> (B, H, T, dh)."""
        return self._query_heads(self._affine("q", z), angles)

    def _query_heads(self, q: Tensor, angles: Angles | None) -> Tensor:
        q = split_heads(q, self.d_head)  # (B, H, T, dh)
        q = q if self.q_norm is None else self.q_norm(q)
        q = q if self.log_beta is None else q * self.log_beta.exp().to(q.dtype)
        return q if angles is None else rotate(q, angles)

    def _key_value_heads(self, k: Tensor, v: Tensor, call: RoundCall) -> KeyValue:
        k = split_heads(k, self.d_head)  # (B, H_kv, S, dh)
        k = self.mixed_keys(k if self.k_norm is None else self.k_norm(k), call)
        k = k if call.angles is None else rotate(k, call.angles)
        return k, split_heads(v, self.heads_per_value * self.d_head)

    def scores_flops(self, n_keys: int) -> int:
        """Count multiplications and additions of one query's scores, q k^T."""
        return 2 * self.split_sizes[0] * n_keys

    def map_flops(self, n_keys: int) -> int:
        """Count what one query costs beyond the linear layers applied once: scores, and weights times values."""
        return self.n_maps * (self.scores_flops(n_keys) + 2 * self.split_sizes[0] * n_keys)

    def fused_extra_flops(self, n_keys: int) -> int:
        """Count the scores that the fused kernel computes again, because it cannot hand out its weights."""
        return (self.fused_score_passes - 1) * self.scores_flops(n_keys)

    def query_weight(self) -> Tensor:
        """Return W_Q, (H*dh, D)."""
        return self.rows("q")[0]

    def _affine(self, part: str, t: Tensor) -> Tensor:
        return functional.linear(t, *self.rows(part))

    def rows(self, part: str) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias of one of q, k, v, wherever they are stored."""
        if self.qkv is None:
            return linear_rows({"q": self.q, "k": self.k, "v": self.v}[part])
        i = "qkv".index(part)
        start = sum(self.split_sizes[:i])
        rows = slice(start, start + self.split_sizes[i])
        return self.qkv.weight[rows], None if self.qkv.bias is None else self.qkv.bias[rows]


def linear_rows(linear: nn.Linear | None) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of a linear layer that is there."""
    assert linear is not None
    return linear.weight, linear.bias
