"""Base learners: what one round does with its input. Softmax attention here; most other learners refine it.

    Attn(z) = softmax(beta W_Q z (W_K s)^T) W_V s        s: where keys and values come from, z itself by default

A learner projects (``project``), attends (``attend``) and leaves masks, caches, kernels and traces to the ``RoundCall``
it is given. A round without an attention map derives from ``Learner``, which has what every round has.
``attention/learners`` holds the other learners and says how to add one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.attention.cache import LayerCache
from boosted_attention.attention.discovery import discover
from boosted_attention.attention.kernels import Kernel, Map, dropped, repeat_heads
from boosted_attention.attention.masks import Mask, sees_recent
from boosted_attention.attention.options import OPTION_NAMES, LayerOptions
from boosted_attention.attention.qk_norm import HeadNorm
from boosted_attention.attention.rotary import Angles, rotate
from boosted_attention.attention.trace import RoundTrace
from boosted_attention.documentation import Option, argument_texts, documented
from boosted_attention.validation import nearest, require, require_choice

KeyValue = tuple[Tensor, Tensor]
ValueChange = Callable[[Tensor], Tensor]  # (B, H_kv, T, dv) -> (B, H_kv, T, dv)


class Projected(NamedTuple):
    """What a round asked and read, for the rounds that share it."""

    q: Tensor  # (B, H, T, dh)
    k: Tensor  # (B, H_kv, S, dh)
    v: Tensor  # (B, H_kv, S, dh)


LEARNED_SCALE_START = 2.0  # inverse temperature at which the paper's retrieval task starts


@documented
@dataclass
class RoundCall:
    """What one round of one forward call may use: input, kernel, mask, dropout, angles, cache and trace."""

    index: int  # Index of the round, from 0.
    x: Tensor  # Input of the layer (B, T, D), whatever the round itself looks at.
    kernel: Kernel  # Kernel that computes the attention.
    mask: Mask  # Mask of the scores, broadcast to (B, H, T, S).
    dropout: float  # Dropout probability of the attention weights; 0 outside of training.
    angles: Angles | None = None  # Angles of the positions, with rotary embedding only.
    cache: LayerCache | None = None  # Cache of the layer's past keys and values; None without one.
    trace: RoundTrace | None = None  # Trace that the round writes into; None without one.
    change_values: ValueChange | None = None  # Function applied to new values before they are cached and read.

    def map(self, q: Tensor, k: Tensor, scale: float) -> Map:
        """Return v -> softmax(scale q k^T + mask) v, (B, H, T, dv), with this call's kernel, mask and dropout."""
        return self._run_kernel(q, k, scale)[0]

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        """Return softmax(scale q k^T + mask), (B, H, T, S), in float32 or better, for a learner with ``needs_maps``.

        In training some are dropped, once: wherever the learner's formula has the map, it has the same ones.
        """
        weights = self._run_kernel(q, k, scale)[1]
        assert weights is not None, "a learner that needs maps runs on the explicit kernel"
        return dropped(weights, self.dropout, self.mask.is_causal)

    def _run_kernel(self, q: Tensor, k: Tensor, scale: float) -> tuple[Map, Tensor | None]:
        apply, weights = self.kernel(q, k, self.mask, scale, self.dropout)
        if self.trace is not None:
            assert weights is not None, "a traced call runs on the explicit kernel"
            self.trace.q, self.trace.scale, self.trace.weights = q, scale, weights
        return apply, weights

    def attention(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Apply the map of q and k to v once."""
        return self.map(q, k, scale)(v)

    def remember(self, slot: str, new: Tensor) -> Tensor:
        """Return the past positions of a cache slot with ``new`` behind them; without a cache, ``new`` itself."""
        return new if self.cache is None else self.cache.append((slot, self.index), new)

    def recall(self, slot: str) -> Tensor | None:
        """Return the past positions of a cache slot, (B, H, S, d); None if there are none."""
        return None if self.cache is None else self.cache.past((slot, self.index))

    def recent(self, slot: str, new: Tensor, count: int) -> Tensor:
        """Return ``new`` (B, H, T, d) behind the ``count`` positions before it, zeros where there are none."""
        whole = new if self.cache is None else self.cache.recent((slot, self.index), new, count)
        return functional.pad(whole, (0, 0, count + new.shape[2] - whole.shape[2], 0))  # (B, H, count + T, d)

    def sees_recent(self, count: int) -> Tensor | None:
        """Return which of the last ``count`` positions each one may see, its own first, as ``masks.sees_recent``."""
        length = self.x.shape[1]
        past = 0 if self.cache is None else self.cache.length
        return sees_recent(self.mask, length, past + length, count)

    def note(self, **tensors: Tensor) -> None:
        """Write tensors that only this learner has into the trace."""
        if self.trace is not None:
            self.trace.extra.update(tensors)


class Learner(nn.Module):
    """What every round has: a function of its input, an output projection where there is one, and what it asks for.

    Args:
        options: the layer's options.
        index: the round.
        d_head: width of a head, if it is not the layer's.
    """

    needs_square_map = False  # whether queries and keys must be the same positions, which rules out memory=
    needs_order = False  # whether it is for causal calls only
    needs_maps = False  # whether its formula contains the attention weights, which only the explicit kernel hands out
    needs_maps_in_backward = False  # whether its gradient alone does
    needs_heads = False  # whether F must be heads side by side, which rules out output space
    needs_estimate = False  # whether its input must be F itself and its keys and values round 0's
    only_corrects = False  # whether it needs a round before it
    starts_at_zero = False  # whether weights of its own make it add nothing at the start
    allows_dropout = True  # whether the learner makes sense with dropped weights
    has_map = False  # whether it has an attention map, which traces then show
    random_start: Mapping[str, float] = {}  # standard deviation of weights of its own that start at random, by name
    starts_as_first: Sequence[str] = ()  # linear layers that start as those of round 0 do, in a model

    def __init__(self, options: LayerOptions, index: int, d_head: int | None = None):
        super().__init__()
        self.d_head = d_head or options.d_head
        self.n_heads = options.n_heads
        self.n_kv_heads = options.kv_heads[index]
        self.out_proj: nn.Linear | None = None

    def reset_parameters(self) -> None:
        """Draw all weights anew, in the order of construction."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the projections that the round has, of q, k and v."""
        return ()

    def silence(self, part: str) -> None:
        """Set the part that makes the round add nothing to zero; a learner that starts at zero has none."""

    def can_read(self, first: Learner) -> bool:
        """Return whether the round can read what round 0 projected, where it shares that."""
        return True

    def packed_matrices(self) -> dict[str, Callable[[Tensor], Sequence[Tensor]]]:
        """Return how weights that hold several matrices divide into them, by name."""
        return {}

    def forward(
        self, z: Tensor, shared: Projected | None, source: KeyValue, call: RoundCall
    ) -> tuple[Tensor, Projected | None]:
        """Run one round.

        Args:
            z: the round's input (B, T, D).
            shared: what round 0 projected, for a round that shares it; None where the round projects its own.
            source: (key, value), each (B, S, D): where keys and values come from.
            call: kernel, mask, angles, cache and trace of this call.

        Returns:
            The round's output (B, T, D), and what it projected and read, None without a map.
        """
        raise NotImplementedError

    def map_flops(self, n_keys: int) -> int:
        """Count what one query costs beyond the linear layers applied once."""
        return 0

    def fused_extra_flops(self, n_keys: int) -> int:
        """Count what the fused kernel computes beyond ``map_flops``."""
        return 0


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


LEARNERS: dict[str, type[Learner]] = {"softmax": SoftmaxLearner}

AnyLearner = TypeVar("AnyLearner", bound=type[Learner])


def register_learner(name: str) -> Callable[[AnyLearner], AnyLearner]:
    """Make a learner known under a name: ``@register_learner("twicing")`` above its class.

    Args:
        name: what the layer option ``learner`` takes.
    """

    def register(learner: AnyLearner) -> AnyLearner:
        require(LEARNERS.get(name, learner) is learner, f"learner={name!r} exists already; choose another name")
        LEARNERS[name] = learner
        return learner

    return register


def list_learners() -> list[str]:
    """Return the names that the layer option ``learner`` takes."""
    discover()
    return list(LEARNERS)


def learner_class(name: str) -> type[Learner]:
    """Return a learner by name, or raise InputError with the nearest one."""
    if name not in LEARNERS:
        discover()
    require_choice("learner", name, LEARNERS)
    return LEARNERS[name]


def own_options(learner: type[Learner]) -> list[Option]:
    """Return the options of a learner's own: the keyword-only arguments of its ``__init__``."""
    texts = argument_texts(learner.__doc__)
    parameters = inspect.signature(learner.__init__, eval_str=True).parameters.values()
    return [
        Option(p.name, p.default, texts.get(p.name, ""), p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY
    ]


def resolve(layer: str, given: Mapping[str, Any]) -> LayerOptions:
    """Sort the keywords of a layer into its own options and its learners'.

    Args:
        layer: name of the layer class, for messages.
        given: what was passed.

    Returns:
        The layer's options, whose ``learner_options`` hold one mapping per round.
    """
    keywords = {name: value for name, value in given.items() if name not in OPTION_NAMES}
    options = LayerOptions(**{name: value for name, value in given.items() if name in OPTION_NAMES})
    taken = [[option.name for option in own_options(learner_class(name))] for name in options.learners]
    known = list(dict.fromkeys(name for names in taken for name in names))
    allowed = [*OPTION_NAMES, *known]
    for name in keywords:
        require(
            name in allowed, f"{layer} has no option {name!r}{nearest(name, allowed)} (options: {', '.join(allowed)})"
        )
    per_round = []
    for m, (learner, names) in enumerate(zip(options.learners, taken, strict=True)):
        own = options.options_of(m)
        shared = isinstance(options.learner_options, Mapping)
        for name in own:
            require(
                name in (known if shared else names),
                f"learner_options: learner={learner!r} has no option {name!r}{nearest(name, names)} "
                f"(options: {', '.join(names) or 'none'})",
            )
            require(name not in keywords, f"{name} is given twice, as a keyword and in learner_options")
        per_round.append({name: value for name, value in {**own, **keywords}.items() if name in names})
    return replace(options, learner_options=tuple(per_round))


def split_heads(t: Tensor, d_head: int) -> Tensor:
    """Split into heads, (B, S, H*dh) -> (B, H, S, dh)."""
    batch, length, width = t.shape
    return t.view(batch, length, width // d_head, d_head).transpose(1, 2)


def own_values(v: Tensor, n_queries: int, n_heads: int) -> Tensor:
    """Return the values at the query positions, for each query head, (B, H_kv, S, dh) -> (B, H or 1, T, dh)."""
    return repeat_heads(v[:, :, v.shape[2] - n_queries :], n_heads)


def merge_heads(t: Tensor) -> Tensor:
    """Concatenate heads, (B, H, T, dh) -> (B, T, H*dh)."""
    return t.transpose(1, 2).flatten(2)
