"""AttentionLayer: learners and gates around the one boosting loop. Standard attention is one round of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Unpack

import torch
from torch import Tensor, nn

from boosted_attention.attention.boosting import boosting
from boosted_attention.attention.cache import KVCache, LayerCache
from boosted_attention.attention.config import CommonOptions, LayerConfig, Temperature, common_options
from boosted_attention.attention.gates import GATES
from boosted_attention.attention.kernels import choose_kernel
from boosted_attention.attention.learners import LEARNERS, RoundCall, SoftmaxLearner
from boosted_attention.attention.masks import build_mask
from boosted_attention.attention.residuals import RESIDUALS
from boosted_attention.attention.trace import LayerTrace, Traced
from boosted_attention.validation import require, require_choice

Memory = Tensor | tuple[Tensor, Tensor]


class AttentionLayer(Traced):
    """Rounds of base learners, each correcting the estimate so far, then (in head space) one output projection.

    Weights: ``rounds.{m}.qkv`` (rows q, k, v; heads contiguous), ``rounds.{m}.q`` where a round shares K/V,
    ``rounds.{m}.q|k|v`` where widths differ, ``rounds.{m}.out`` in output space, ``gates.{m-1}.*``, ``out``.

    ``kernel`` is "auto" (fused where possible) or "explicit" (the attention matrix in memory, for comparisons).
    """

    def __init__(self, config: LayerConfig):
        super().__init__()
        require_choice("learner", config.learner, LEARNERS)
        self.config = config
        self.n_rounds = config.n_rounds
        self.kernel = "auto"
        make = partial(LEARNERS[config.learner], config, **config.learner_options)
        self.rounds = nn.ModuleList([make(m) for m in range(config.n_rounds)])
        gate = GATES[config.gate]
        self.gates = nn.ModuleList([gate(config.d_estimate, bias=config.bias) for _ in range(config.n_rounds - 1)])
        self.out = None
        if config.out and config.space == "heads":
            self.out = nn.Linear(config.d_inner, config.d_model, bias=config.bias)
        learner = self._learner(0)
        require(
            config.dropout == 0.0 or learner.allows_dropout,
            f"dropout={config.dropout} must be 0 with learner={config.learner!r}: a random map has no fixed point",
        )

    def _learner(self, m: int) -> SoftmaxLearner:
        learner = self.rounds[m]
        assert isinstance(learner, SoftmaxLearner)
        return learner

    def forward(
        self,
        x: Tensor,
        *,
        memory: Memory | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
        positions: Tensor | None = None,
        cache: KVCache | LayerCache | None = None,
        trace: LayerTrace | None = None,
    ) -> Tensor:
        """Attend.

        Args:
            x: (B, T, d_model).
            memory: cross-attention: a tensor (B, S, d_model) or a (key, value) pair. Every round's keys and values
                come from it; only the query becomes the residual.
            mask: bool (True = may attend) or additive, (T, S) or (B, H, T, S), any size may be 1. S counts what the
                cache holds. A query that sees nothing contributes zero before the output projection.
            is_causal: position t sees positions up to t. Joined with ``mask``; required with ``cache``.
            positions: integer positions (T,) or (B, T) for rotary embedding; default: counting on from the cache.
            cache: a KVCache (its slots for ``layer_index`` are used) or a LayerCache, extended by this call.
            trace: filled with what every round did.

        Returns:
            (B, T, d_model); with ``out=False`` the last estimate F itself.
        """
        source, n_keys = self._check_input(x, memory, is_causal)
        batch, n_queries = x.shape[:2]
        layer_cache = cache.layer(self.config.layer_index) if isinstance(cache, KVCache) else cache
        past = 0
        if layer_cache is not None:
            require(isinstance(layer_cache, LayerCache), "cache must be a KVCache or one of its layers")
            require(memory is None, "cache: keys and values come from memory, which does not grow; pass one of the two")
            require(is_causal, "cache: only a causal layer can decode step by step; pass is_causal=True")
            layer_cache.admit((id(self), self.disabled), batch, n_queries)
            past = layer_cache.length
        positions = self._positions(x, positions, past)
        mask_form = build_mask(mask, is_causal, batch, self.config.n_heads, n_queries, past + n_keys, x.device)

        trace = self.trace if trace is None else trace
        active = [m for m in range(self.n_rounds) if m not in self.disabled]
        if trace is not None:
            trace.begin(len(active))
        dropout = self.config.dropout if self.training else 0.0
        kernel = choose_kernel(self.kernel, tracing=trace is not None, dropout=dropout)
        shared_kv: tuple[Tensor, Tensor] | None = None

        def learn(m: int, z: Tensor) -> Tensor:
            nonlocal shared_kv
            round_trace = None if trace is None else trace.rounds[active.index(m)]
            call = RoundCall(m, kernel, mask_form, dropout, positions, layer_cache, round_trace)
            kv = None if self.config.reads_own_kv(m) else shared_kv
            reads = source or ((x, x) if self.config.kv_source == "input" else (z, z))
            estimate, kv = self.rounds[m](z, kv, reads, call)
            shared_kv = kv if m == 0 else shared_kv
            return estimate

        learners = [partial(learn, m) for m in active]
        gates = [self.gates[m - 1] for m in active[1:]]
        residual = RESIDUALS[self.config.residual]
        estimate = boosting(x, learners, gates, residual, None if trace is None else trace.observe)
        if layer_cache is not None:
            layer_cache.advance(n_queries)
        return estimate if self.out is None else self.out(estimate)

    def _check_input(
        self, x: Tensor, memory: Memory | None, is_causal: bool
    ) -> tuple[tuple[Tensor, Tensor] | None, int]:
        """Validate shapes; the (key, value) source if there is a memory, and how many keys this call adds."""
        d = self.config.d_model
        if x.ndim != 3 or x.shape[-1] != d:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected (batch, length, {d})")
        widths = (self.config.kdim or d, self.config.vdim or d)
        if memory is None:
            if widths != (d, d):
                raise ValueError(f"memory is needed: kdim, vdim = {widths} differ from d_model={d}")
            return None, x.shape[1]
        if self._learner(0).needs_square_map:
            raise ValueError(
                f"memory: learner={self.config.learner!r} smooths values with the map that made them and needs queries "
                "and keys to be the same positions"
            )
        require(not is_causal, "is_causal: a memory has no order of its own; pass a mask")
        require(self.config.rope_theta is None, "memory: a layer with rope_theta has no positions for a memory's keys")
        source = (memory, memory) if isinstance(memory, Tensor) else tuple(memory)
        if len(source) != 2:
            raise ValueError(f"memory has {len(source)} entries; expected a tensor or a (key, value) pair")
        shapes = [tuple(t.shape) for t in source]
        expected = [(x.shape[0], shapes[0][1] if len(shapes[0]) == 3 else "keys", width) for width in widths]
        if shapes != expected:
            raise ValueError(f"memory has shapes {shapes}; expected {expected} for this x")
        return source, source[0].shape[1]

    def _positions(self, x: Tensor, positions: Tensor | None, past: int) -> Tensor | None:
        batch, length = x.shape[:2]
        if self.config.rope_theta is None:
            require(positions is None, "positions: the layer was built without rope_theta and would ignore them")
            return None
        if positions is None:
            return torch.arange(past, past + length, device=x.device)
        integral = not positions.is_floating_point() and positions.dtype != torch.bool
        if not integral or positions.shape not in ((length,), (1, length), (batch, length)):
            raise ValueError(
                f"positions has shape {tuple(positions.shape)} and dtype {positions.dtype}; "
                f"expected integers of shape ({length},) or ({batch}, {length})"
            )
        return positions

    def extra_repr(self) -> str:
        c = self.config
        shown = f"d_model={c.d_model}, n_heads={c.n_heads}, n_rounds={c.n_rounds}, learner={c.learner!r}"
        if c.n_rounds > 1:
            shown += f", gate={c.gate!r}, kv_source={c.kv_source!r}, residual={c.residual!r}, space={c.space!r}"
        return shown


class StandardAttention(AttentionLayer):
    """softmax(Q K^T / sqrt(d_h)) V, projected out: the boosting loop with one round (Vaswani et al., 2017)."""

    def __init__(self, d_model: int, n_heads: int, **common: Unpack[CommonOptions]):
        super().__init__(LayerConfig(d_model=d_model, n_heads=n_heads, **common_options(common)))


class BoostedAttention(AttentionLayer):
    """Gradient-boosted attention: round 0 estimates, each further round attends to what is still missing.

        F_0 = Attn_0(x);   r_m = x - F_{m-1};   c_m = Attn_m(r_m);   F_m = F_{m-1} + g_m * c_m;   out(F_{M-1})

    Reference: "Gradient Boosting within a Single Attention Layer", Algorithm 1.

    Args:
        d_model: width of x.
        n_heads: attention heads per round.
        n_rounds: M; 1 is standard attention.
        gate: "none" (g = 1), "scalar" (one learned shrinkage per round), "vector" (the paper's, Linear(2d -> d) on
            [F || c]), "mlp" (with a hidden layer).
        kv_source: where a correction's keys and values come from: "residual" (the paper), "input" (Appendix D), or
            "shared" (round 0's own keys and values, no new projections, one K/V in the cache).
        residual: "error" (x - F), or a control: "input" (x, a parallel second attention), "estimate" (F).
        space: "heads" (x - F before the one output projection; needs n_heads * head_dim == d_model) or "output" (every
            round has its own output projection; any head_dim).
        learner: the base learner of every round: "softmax", "differential", "gated", ... (``LEARNERS``).
        n_kv_heads: grouped-query attention: an int, or one per round.
        head_dim: default d_model / n_heads.
        rope_theta: base of the rotary embedding; None for no rotary embedding.
        temperature: the factor on the scores: None (1/sqrt(head_dim)), a float, or "learned" (an inverse temperature
            per round, starting at 2).
        out: False leaves out the output projection.
        layer_index: place in the model: names the cache slots; differential attention's lambda_init depends on it.
        bias: biases on projections and gates.
        dropout: on attention weights, in training.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_rounds: int = 2,
        gate: str = "vector",
        kv_source: str = "residual",
        residual: str = "error",
        space: str = "heads",
        learner: str = "softmax",
        n_kv_heads: int | Sequence[int] | None = None,
        head_dim: int | None = None,
        rope_theta: float | None = None,
        temperature: Temperature = None,
        out: bool = True,
        layer_index: int = 0,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__(
            LayerConfig(
                d_model=d_model,
                n_heads=n_heads,
                n_rounds=n_rounds,
                gate=gate,
                kv_source=kv_source,
                residual=residual,
                space=space,
                learner=learner,
                n_kv_heads=n_kv_heads,
                head_dim=head_dim,
                rope_theta=rope_theta,
                temperature=temperature,
                out=out,
                layer_index=layer_index,
                bias=bias,
                dropout=dropout,
            )
        )
