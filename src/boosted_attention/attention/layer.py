"""AttentionLayer: learners and gates around the one boosting loop. Standard attention is one round of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Concatenate, ParamSpec

import torch
from torch import Tensor, nn

from boosted_attention.attention.boosting import boosting
from boosted_attention.attention.cache import KVCache, LayerCache
from boosted_attention.attention.gates import GATES
from boosted_attention.attention.halting import HaltingUnit, PonderCosts, RoundHalting, Tokens
from boosted_attention.attention.kernels import choose_kernel
from boosted_attention.attention.learner import LEARNERS, Learner, learner_class, own_options, resolve
from boosted_attention.attention.masks import Mask, build_mask
from boosted_attention.attention.options import LAYER_DEFAULTS, ZERO_GATES, LayerOptions, layer_options
from boosted_attention.attention.residuals import RESIDUALS
from boosted_attention.attention.rotary import Angles, rotary_angles
from boosted_attention.attention.round_call import KeyValue, Projected, RoundCall, ValueChange
from boosted_attention.attention.softmax import SoftmaxLearner
from boosted_attention.attention.trace import LayerTrace, Traced
from boosted_attention.compat import has_values, inside_transform
from boosted_attention.documentation import Option, with_arguments
from boosted_attention.validation import InputError, require

CrossMemory = Tensor | tuple[Tensor, Tensor]
P = ParamSpec("P")


def takes(options: Callable[P, object]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Tell type checkers that a method takes the arguments of ``options``; nothing changes at run time."""
    return lambda method: method


class AttentionLayer(Traced):
    """Rounds of base learners, each correcting the estimate so far, then (in head space) one output projection.

        F_0 = f_0(x);   r_m = x - F_{m-1};   c_m = f_m(r_m);   F_m = F_{m-1} + g_m * c_m;   out_proj(F_{M-1})

    x (B, T, d_model) -> (B, T, d_model). Weights: ``rounds.{m}.qkv`` (rows q, k, v; heads contiguous), ``rounds.{m}.q``
    where a round shares K/V, ``rounds.{m}.q|k|v`` where widths differ, ``rounds.{m}.q_norm|k_norm`` with qk_norm,
    ``rounds.{m}.out_proj`` in output space, ``gates.{m-1}.*``, ``residuals.{m-1}.rho`` with residual=normalised,
    ``out_proj``. Options of a learner's own may be passed as keywords as well.
    Reference: "Gradient Boosting within a Single Attention Layer", Algorithm 1, https://arxiv.org/abs/2604.03190
    """

    __signature__: ClassVar[inspect.Signature]
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults of the class that differ from those of ``LayerOptions``, stated in the heading of a subclass."""

    def __init_subclass__(cls, **defaults: Any):
        """Set the defaults that a class states in its heading, and derive its signature and help from its options.

        Args:
            defaults: defaults, as in ``class TwicingAttention(AttentionLayer, learner="twicing")``.
        """
        super().__init_subclass__()
        cls.defaults = {**cls.defaults, **defaults}
        if "__init__" in vars(cls):  # a subclass with arguments of its own has their signature
            cls.__signature__ = without_self(inspect.signature(cls.__init__))
        else:
            document(cls)

    @takes(LayerOptions)
    def __init__(self, d_model: int, n_heads: int, **options: Any):
        super().__init__()
        given = {**self.defaults, "d_model": d_model, "n_heads": n_heads, **options}
        self.config = config = resolve(type(self).__name__, given)
        self.n_rounds, self.kernel = config.n_rounds, config.kernel
        made = [learner_class(name)(config, m, **config.options_of(m)) for m, name in enumerate(config.learners)]
        for m, learner in enumerate(made):
            self._check_learner(m, learner, made[0])
        self.rounds = nn.ModuleList(made)
        self.gates = nn.ModuleList(
            [
                GATES[name](config.d_estimate, bias=config.bias, n_heads=config.n_heads, **config.factory)
                for name in config.gates
            ]
        )
        self.residuals = nn.ModuleList(
            [RESIDUALS[name](config.d_estimate, **config.factory) for name in config.residuals]
        )
        self.halting = HaltingUnit(config.d_estimate, **config.factory) if config.halting else None
        self.out_proj = None
        if config.out_proj and config.space == "heads":
            self.out_proj = nn.Linear(config.d_inner, config.d_model, bias=config.bias, **config.factory)
        self.silence_corrections()

    def _check_learner(self, m: int, learner: Learner, first: Learner) -> None:
        """Raise InputError where the learner of round m does not go with an option, or with that of round 0."""
        config, name = self.config, self.config.learners[m]
        require(
            config.dropout == 0.0 or learner.allows_dropout,
            f"dropout={config.dropout} must be 0 with learner={name!r} in round {m}: a random map has no fixed point",
        )
        require(
            config.kernel != "fused" or not (learner.needs_maps or learner.needs_maps_in_backward),
            f"kernel='fused' with learner={name!r} in round {m}: its "
            f"{'formula' if learner.needs_maps else 'gradient'} contains the attention weights; use kernel='auto'",
        )
        require(
            not config.halting or m == 0 or not learner.needs_square_map,
            f"halting=True with learner={name!r} in round {m}: it needs queries and keys to be the same positions, and "
            "tokens that have stopped have no queries",
        )
        require(
            m > 0 or not learner.only_corrects,
            f"learner={name!r} in round 0 has nothing to correct; begin with another, such as "
            f"learner=('softmax', {name!r})",
        )
        require(
            config.space == "heads" or not learner.needs_heads,
            f"space='output' with learner={name!r} in round {m}: it works on heads, which are gone behind an output "
            "projection; use space='heads'",
        )
        require(
            not learner.needs_estimate or (config.kv_source == "shared" and config.residuals[m - 1] == "estimate"),
            f"kv_source={config.kv_source!r} and residual={config.residual!r} with learner={name!r} in round {m}: it "
            "compares F with round 0's values and needs kv_source='shared' and residual='estimate'",
        )
        instead = "another learner in round 0" if learner.needs_estimate else "kv_source='residual' or 'input'"
        require(
            config.reads_own_kv(m) or learner.can_read(first),
            f"kv_source='shared' with learner={config.learners}: {name!r} in round {m} lays heads out otherwise than "
            f"{config.learners[0]!r} in round 0; use {instead}",
        )
        if m > 0 and learner.starts_at_zero:
            gate = config.gates[m - 1]
            require(
                gate not in ZERO_GATES,
                f"gate={gate!r} with learner={name!r} in round {m}: both start at zero and would hold each other up; "
                "use gate='none'",
            )
        elif m > 0 and config.correction_start == "silent":
            config.require_silent_part(m)

    @property
    def value_layout(self) -> tuple[int, int]:
        """Number and width of round 0's value heads."""
        learner = self.rounds[0]
        assert isinstance(learner, SoftmaxLearner)
        return learner.value_layout

    def reset_parameters(self) -> None:
        """Draw all weights anew, in the order of construction: the same seed gives the same weights."""
        for part in (*self.rounds, *self.gates, *self.residuals, self.halting, self.out_proj):
            if part is not None:
                part.reset_parameters()  # type: ignore[operator]  # nn.ModuleList forgets the type
        self.silence_corrections()

    def silence_corrections(self) -> None:
        """Set to zero what makes the corrections silent, if they are to start so; whoever draws weights calls it."""
        if self.config.correction_start != "silent":
            return
        for m in range(1, self.n_rounds):
            learner, part = self.rounds[m], self.config.silent_part(m)
            assert isinstance(learner, Learner)
            if part is not None and part != "gate":  # which starts at zero
                learner.silence(part)

    @property
    def starts_silent(self) -> bool:
        """Whether corrections add nothing at the start."""
        if self.config.correction_start == "silent":
            return True
        corrections = zip(self.config.gates, self.rounds[1:], strict=True)
        return all(gate in ZERO_GATES or learner.starts_at_zero for gate, learner in corrections)

    def forward(
        self,
        x: Tensor,
        *,
        memory: CrossMemory | None = None,
        mask: Tensor | Mask | None = None,
        is_causal: bool = False,
        positions: Tensor | Mapping[int, Angles] | None = None,
        cache: KVCache | LayerCache | None = None,
        trace: LayerTrace | None = None,
        key_value_input: KeyValue | None = None,
        change_values: ValueChange | None = None,
        ponder: PonderCosts | None = None,
    ) -> Tensor:
        """Run the rounds and project the result.

        Args:
            x: (B, T, d_model).
            memory: what cross-attention reads, a tensor (B, S, d_model) or a (key, value) pair. Every round's keys and
                values come from it; only the query becomes the residual.
            mask: bool (True = may attend) or additive, (T, S) or (B, H, T, S), any size may be 1. S counts what the
                cache holds. A query that sees nothing contributes zero before the output projection. Layers of one
                model may share what ``build_mask`` made of mask and causality.
            is_causal: position t sees positions up to t. Joined with ``mask``; required with ``cache``.
            positions: integer positions (T,) or (B, T) for rotary embedding; default: counting on from the cache.
                Layers of one model may share what ``rotary_angles`` made of them, by the width of a head.
            cache: a KVCache (its slots for ``layer_index`` are used) or a LayerCache, extended by this call.
            trace: filled with what every round did.
            key_value_input: (key, value), each (B, T, d_model), that take the place of x as the source of round 0's
                keys and values, and of later rounds' with kv_source=input. They are at x's positions, unlike a memory.
            change_values: function applied to round 0's new values (B, H_kv, T, dv) before they are cached and read.
            ponder: costs to which a layer that halts adds its N + R (B, T).

        Returns:
            (B, T, d_model); with ``out_proj=False`` the last estimate F itself.
        """
        source, n_keys = self._check_input(x, memory, is_causal)
        inputs = (x, x) if key_value_input is None else key_value_input
        if key_value_input is not None and (memory is not None or any(t.shape != x.shape for t in inputs)):
            shapes = [tuple(t.shape) for t in inputs]
            raise InputError(f"key_value_input has shapes {shapes}; expected twice {tuple(x.shape)}, and no memory")
        batch, n_queries = x.shape[:2]
        layer_cache = cache.layer(self.config.layer_index) if isinstance(cache, KVCache) else cache
        past = 0
        if layer_cache is not None:
            require(isinstance(layer_cache, LayerCache), "cache must be a KVCache or one of its layers")
            require(memory is None, "cache: keys and values come from memory, which does not grow; pass one of the two")
            require(is_causal, "cache: only a causal layer can decode step by step; pass is_causal=True")
            layer_cache.admit((id(self), self.disabled), batch, n_queries)
            past = layer_cache.length
        angles = self._angles(x, positions, past)
        mask_form = (
            mask
            if isinstance(mask, Mask)
            else build_mask(mask, is_causal, batch, self.config.n_heads, n_queries, past + n_keys, x.device)
        )

        trace = self.trace if trace is None else trace
        active, gates, residuals = self._active()
        if trace is not None:
            trace.begin(len(active))
        dropout = self.config.dropout if self.training else 0.0
        rounds: list[Any] = list(self.rounds)  # which costs less than one index into a ModuleList
        first: Projected | None = None
        halting = None
        if self.halting is not None:
            by_value = has_values(x) and not (torch.compiler.is_compiling() or inside_transform())
            halting = RoundHalting(
                self.halting,
                x,
                gathers=by_value and trace is None and dropout == 0.0,
                ends=layer_cache is None or not any(map(self.config.reads_own_kv, active[1:])),
            )

        def learn(m: int, z: Tensor) -> Tensor:
            nonlocal first
            kernel = choose_kernel(
                self.kernel,
                needs_maps=rounds[m].needs_maps,
                tracing=trace is not None,
                dropout=dropout,
                mask=mask_form,
                device=x.device,
            )
            round_trace = None if trace is None else trace.rounds[active.index(m)]
            turned = None if angles is None else angles[rounds[m].d_head]
            change = change_values if m == 0 else None
            call = RoundCall(m, x, kernel, mask_form, dropout, turned, layer_cache, round_trace, change)
            shared = None if self.config.reads_own_kv(m) else first
            reads = source or (inputs if m == 0 or self.config.kv_source == "input" else (z, z))
            if halting is not None and halting.tokens is not None:
                assert first is not None
                return self._learn_from_some(halting.tokens, z, first, reads, call)
            estimate, projected = rounds[m](z, shared, reads, call)
            first = projected if m == 0 else first
            return estimate

        learners = [partial(learn, m) for m in active]
        estimate = boosting(x, learners, gates, residuals, None if trace is None else trace.observe, halting)
        if halting is not None:
            if ponder is not None:
                ponder.add(halting.clock.ponder)
            if trace is not None:
                trace.note_halting(halting.clock.steps, halting.weights)
        if layer_cache is not None:
            layer_cache.advance(n_queries)
        return estimate if self.out_proj is None else self.out_proj(estimate)

    def _active(self) -> tuple[Sequence[int], Iterable[Any], Iterable[Any]]:
        """Return the rounds that are not disabled, and their gates and residual rules."""
        if not self.disabled:
            return range(self.n_rounds), self.gates, self.residuals
        active = [m for m in range(self.n_rounds) if m not in self.disabled]
        return active, [self.gates[m - 1] for m in active[1:]], [self.residuals[m - 1] for m in active[1:]]

    def _learn_from_some(
        self, tokens: Tokens, z: Tensor, first: Projected, source: KeyValue, call: RoundCall
    ) -> Tensor:
        """Run a round for some tokens, (B', K, D) -> (B', K, D); all tokens' keys and values are there to be read."""
        learner = self.rounds[call.index]
        assert isinstance(learner, SoftmaxLearner)
        k, v = first.k, first.v
        if self.config.reads_own_kv(call.index):
            k, v = learner.project_key_value(*source, call)
            k, v = call.remember("k", k), call.remember("v", v)
        if z.numel() == 0:
            return z.new_empty(*z.shape[:2], self.config.d_estimate)
        if len(tokens.rows) < len(k):
            k, v = k[tokens.rows], v[tokens.rows]
        mask = tokens.of_mask(call.mask, k.shape[2])
        angles = None if call.angles is None else Angles(*map(tokens.of_heads, call.angles))
        return learner(z, first._replace(k=k, v=v), source, replace(call, mask=mask, angles=angles))[0]

    def _check_input(self, x: Tensor, memory: CrossMemory | None, is_causal: bool) -> tuple[KeyValue | None, int]:
        """Validate shapes; return the memory's (key, value), if there is one, and how many keys this call adds."""
        d = self.config.d_model
        if x.ndim != 3 or x.shape[-1] != d:
            raise InputError(f"x has shape {tuple(x.shape)}; expected (batch, length, {d})")
        widths = (self.config.kdim or d, self.config.vdim or d)
        if memory is None:
            if not is_causal:
                self._check_order()
            if widths != (d, d):
                raise InputError(f"memory is needed: kdim, vdim = {widths} differ from d_model={d}")
            return None, x.shape[1]
        for m, learner in enumerate(self.rounds):
            if learner.needs_square_map:
                raise InputError(
                    f"memory: learner={self.config.learners[m]!r} in round {m} uses what its own positions hold and "
                    "needs queries and keys to be the same positions"
                )
        require(not is_causal, "is_causal: a memory has no order of its own; pass a mask")
        require(self.config.rope_theta is None, "memory: a layer with rope_theta has no positions for a memory's keys")
        source = (memory, memory) if isinstance(memory, Tensor) else tuple(memory)
        if len(source) != 2:
            raise InputError(f"memory has {len(source)} entries; expected a tensor or a (key, value) pair")
        shapes = [tuple(t.shape) for t in source]
        expected = [(x.shape[0], shapes[0][1] if len(shapes[0]) == 3 else "keys", width) for width in widths]
        if shapes != expected:
            raise InputError(f"memory has shapes {shapes}; expected {expected} for this x")
        return source, source[0].shape[1]

    def _check_order(self) -> None:
        """Raise InputError where a round is for causal calls only."""
        for m, learner in enumerate(self.rounds):
            require(
                not learner.needs_order,
                f"is_causal: learner={self.config.learners[m]!r} in round {m} reduces each value by what those before "
                "it predict and needs an order; pass is_causal=True",
            )

    @property
    def head_widths(self) -> set[int]:
        """Widths of the heads of all rounds."""
        return {learner.d_head for learner in self.rounds}  # type: ignore[misc]  # nn.ModuleList forgets the type

    def _angles(
        self, x: Tensor, positions: Tensor | Mapping[int, Angles] | None, past: int
    ) -> Mapping[int, Angles] | None:
        """Return the angles of the positions by the width of a head; None without rotary embedding."""
        batch, length = x.shape[:2]
        if self.config.rope_theta is None:
            require(positions is None, "positions: the layer was built without rope_theta and would ignore them")
            return None
        if isinstance(positions, Mapping):
            return positions
        if positions is None:
            positions = torch.arange(past, past + length, device=x.device)
        integral = not positions.is_floating_point() and positions.dtype != torch.bool
        if not integral or positions.shape not in ((length,), (1, length), (batch, length)):
            raise InputError(
                f"positions has shape {tuple(positions.shape)} and dtype {positions.dtype}; "
                f"expected integers of shape ({length},) or ({batch}, {length})"
            )
        return rotary_angles(positions, self.head_widths, self.config.rope_theta, x.dtype)

    def extra_repr(self) -> str:
        c = self.config
        shown = f"d_model={c.d_model}, n_heads={c.n_heads}, n_rounds={c.n_rounds}, learner={c.learner!r}"
        if c.n_rounds > 1:
            shown += f", gate={c.gate!r}, kv_source={c.kv_source!r}, residual={c.residual!r}, space={c.space!r}"
            shown += ", halting=True" if c.halting else ""
        return shown


def options_of_class(layer: type[AttentionLayer]) -> list[Option]:
    """Return the options a layer class takes: those of every layer, and those of its default learner."""
    learners = layer.defaults.get("learner", "softmax")
    learners = [learners] if isinstance(learners, str) else learners
    own = {option.name: option for learner in learners for option in own_options(LEARNERS[learner])}
    return [*layer_options(layer.defaults), *own.values()]


def without_self(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature of a method as callers see it."""
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def document(layer: type[AttentionLayer]) -> None:
    """Write the options of a layer class into its signature and its docstring."""
    options = options_of_class(layer)
    parameters = [option.parameter(keyword=option.name not in ("d_model", "n_heads")) for option in options]
    layer.__signature__ = inspect.Signature(parameters)
    layer.__doc__ = with_arguments(layer.__doc__, options)


document(AttentionLayer)


class StandardAttention(AttentionLayer, **LAYER_DEFAULTS["StandardAttention"]):
    """Standard attention, softmax(Q K^T / sqrt(d_h)) V and an output projection: the boosting loop with one round.

    x (B, T, d_model) -> (B, T, d_model).
    Reference: Vaswani et al., "Attention Is All You Need", NeurIPS 2017, https://arxiv.org/abs/1706.03762
    """


class BoostedAttention(AttentionLayer, **LAYER_DEFAULTS["BoostedAttention"]):
    """Gradient-boosted attention: round 0 estimates, each further round attends to what is still missing.

        F_0 = Attn_0(x);   r_m = x - F_{m-1};   c_m = Attn_m(r_m);   F_m = F_{m-1} + g_m * c_m;   out_proj(F_{M-1})

    x (B, T, d_model) -> (B, T, d_model).
    Reference: "Gradient Boosting within a Single Attention Layer", Algorithm 1, https://arxiv.org/abs/2604.03190
    """
