"""A pretrained model's own attention as round 0, with corrections behind it: the one boosting loop, output space.

    F_0 = attention(x);   r_m = x - F_{m-1};   c_m = correction_m(r_m);   F_m = F_{m-1} + g_m * c_m

x is what the model feeds its attention (after its norm), F what the attention returns (after its output projection).

The attention module stays where it is and becomes a subclass of its own class, so that its weights keep their names and
the model's code finds everything it reads of its attention.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.generation.continuous_batching import PagedAttentionCache

from boosted_attention.attention.boosting import boosting
from boosted_attention.attention.residuals import ErrorResidual
from boosted_attention.attention.trace import RoundTrace, Traced
from boosted_attention.pretrained.caching import PAGES, SharedKV, SharedPages, cache_argument, extend, with_cache
from boosted_attention.pretrained.families import CACHE_INDICES, OURS, cache_index_name
from boosted_attention.validation import InputError


class CorrectedAttention(Traced):
    """An attention module of transformers with corrections: same arguments, same results.

    Weights: the module's own under their own names, ``rounds.{m}.*`` the corrections', ``gates.{m-1}.*``. What round m
    returns passes through the empty module ``outputs.{m}``, for hooks that read or change it.
    """

    layer_idx: int
    rounds: Any  # nn.ModuleDict of corrections, by the number of their round, from "1" on
    outputs: nn.ModuleList  # one nn.Identity per round
    cache_name: str  # what the forward pass calls its cache
    residual_place: int | None  # where the forward pass takes the stream it adds to its output; None if it does not

    @property
    def corrections(self) -> Sequence[nn.Module]:
        """Corrections, in order."""
        return list(self.rounds.values())

    def add(self, correction: nn.Module, gate: nn.Module) -> None:
        """Add one more round; its cache index is the layer of its keys and values and has no other use."""
        self.rounds[str(self.n_rounds)] = correction
        self.gates.append(gate)
        self.residuals.append(ErrorResidual())
        self.outputs.append(nn.Identity())
        self.n_rounds += 1

    def correction_parts(self) -> list[nn.Module]:
        """Return all corrections and their gates."""
        return [*self.corrections, *self.gates]

    def correction_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of all corrections and their gates."""
        return [p for part in self.correction_parts() for p in part.parameters()]

    def parts(self) -> list[list[Any]]:
        """Return corrections, gates, residual rules and outputs, past the slow lookups of their containers."""
        containers: Any = self._modules
        return [list(containers[name]._modules.values()) for name in ("rounds", "gates", "residuals", "outputs")]

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        named = "hidden_states" in kwargs
        x: Tensor = kwargs.pop("hidden_states") if named else args[0]
        args = args if named else args[1:]
        corrections, gates, residuals, outputs = self.parts()
        active = [m for m in range(self.n_rounds) if m not in self.disabled]
        residual, args, kwargs = without_residual(self.residual_place, args, kwargs)
        cache = next((value for value in (*args, *kwargs.values()) if isinstance(value, Cache)), None)
        shared = None
        if any(shares_kv(corrections[m - 1]) for m in active[1:]):
            shared = SharedKV(cache, cache_index(self))
            args, kwargs = with_cache(shared, cache, self.cache_name, args, kwargs)
            if isinstance(pages := kwargs.get(PAGES), PagedAttentionCache):
                kwargs[PAGES] = SharedPages(pages)
        rest: Any = ()
        trace = self.trace
        if trace is not None:
            trace.begin(len(active))

        def learn(m: int, z: Tensor) -> Tensor:
            nonlocal rest
            module: Any = corrections[m - 1] if m else self
            if m and not shares_kv(module) and cache is not None:
                extend(cache, cache_index(self), cache_index(module), z.shape[1])
            # Corrections are called past their hooks: transformers' record the model's own attention only.
            call: Any = module.forward if m else super(CorrectedAttention, self).forward
            if trace is None:
                made = call(z, *args, **kwargs)
            else:
                with head_gate_of(module, turn := trace.rounds[active.index(m)]):
                    made = traced_call(module, call, z, args, kwargs)
                turn.weights = made[1]
            if m == 0:
                rest = made[1:]  # a tuple, or what the model takes
                if shared is not None and shared.held is None:
                    raise InputError(
                        f"kv='shared': {type(self).__name__} does not hand its keys and values to the cache itself, so "
                        "that corrections cannot read them; use kv='own'"
                    )
            return outputs[m](made[0])

        learners = [partial(learn, m) for m in active]
        gates, residuals = ([part[m - 1] for m in active[1:]] for part in (gates, residuals))
        estimate = boosting(x, learners, gates, residuals, None if trace is None else trace.observe)
        return type(rest)([estimate if residual is None else estimate + residual, *rest])


def cache_index(attention: nn.Module) -> int:
    """Return the number of an attention module's layer of the cache."""
    return getattr(attention, cache_index_name(attention) or CACHE_INDICES[0])


def without_residual(
    place: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor | None, tuple[Any, ...], dict[str, Any]]:
    """Return the stream that a module would add to its output, as Bloom's do, and the arguments with zeros instead.

    Args:
        place: where the module takes it; None if it adds none.
        args: arguments by place, behind the hidden states.
        kwargs: arguments by name.
    """
    if place is None:
        return None, args, kwargs
    if "residual" in kwargs:
        residual = kwargs["residual"]
        return residual, args, {**kwargs, "residual": torch.zeros_like(residual)}
    residual = args[place]
    return residual, (*args[:place], torch.zeros_like(residual), *args[place + 1 :]), kwargs


def residual_place(kind: Any) -> int | None:
    """Return the place of ``residual`` among a class's arguments behind the hidden states; None where it has none."""
    names = list(inspect.signature(kind.forward).parameters)[2:]
    return names.index("residual") if "residual" in names else None


def shares_kv(correction: nn.Module) -> bool:
    """Say whether a correction reads round 0's keys and values."""
    return getattr(correction, "shares_kv", False)


@cache
def corrected_class(base: type[nn.Module]) -> type[CorrectedAttention]:
    """Make the class that modules of a class become when they are corrected."""
    known = {"cache_name": cache_argument(base), "residual_place": residual_place(base), "__module__": __name__}
    kind: Any = type(f"Corrected{base.__name__}", (CorrectedAttention, base), known)
    globals()[kind.__name__] = kind  # for pickle
    return kind


def become_corrected(attention: nn.Module) -> CorrectedAttention:
    """Turn an attention module into one with corrections, none so far, in place."""
    if isinstance(attention, CorrectedAttention):
        return attention
    changed: Any = attention
    changed.__class__ = corrected_class(type(attention))
    changed.rounds, changed.gates, changed.residuals = nn.ModuleDict(), nn.ModuleList(), nn.ModuleList()
    changed.outputs = nn.ModuleList([nn.Identity()])
    changed.trace, changed.disabled, changed.n_rounds = None, frozenset(), 1
    return changed


def become_uncorrected(attention: CorrectedAttention) -> nn.Module:
    """Give a module its own class back, in place."""
    changed: Any = attention
    for name in OURS:
        delattr(changed, name)
    changed.__class__ = original_class(attention)
    return changed


def original_class(attention: nn.Module) -> type[nn.Module]:
    """Return the class of an attention module in its own model."""
    own = type(attention)
    return own.__mro__[own.__mro__.index(Traced) + 1] if isinstance(attention, CorrectedAttention) else own


def original_view(attention: nn.Module) -> nn.Module:
    """Return the module without its corrections, as a second object that shares its parts, to be copied."""
    view = copy.copy(attention)
    if isinstance(attention, CorrectedAttention):
        state = {name: value for name, value in vars(attention).items() if name not in OURS}
        state["_modules"] = {name: m for name, m in attention._modules.items() if name not in OURS}
        view.__dict__ = state
        view.__class__ = original_class(attention)
    return view


def traced_call(module: nn.Module, call: Any, z: Tensor, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Call with the eager kernel, which hands out its weights, and a causal mask where the model gave none."""
    config: Any = getattr(module, "config", None) or SimpleNamespace(_attn_implementation="eager")  # has one kernel
    before = config._attn_implementation
    mask = kwargs.get("attention_mask")
    length = z.shape[1]
    if mask is None:
        mask = torch.ones(length, length, dtype=torch.bool, device=z.device).tril()[None, None]
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=z.dtype).masked_fill(~mask, torch.finfo(z.dtype).min)
    try:
        config._attn_implementation = "eager"
        return call(z, *args, **{**kwargs, "attention_mask": mask})
    finally:
        config._attn_implementation = before


@contextmanager
def head_gate_of(module: nn.Module, turn: RoundTrace) -> Iterator[None]:
    """Write down what the gate inside a correction, if it has one, gives while the correction runs.

    Args:
        module: the module that runs; light corrections tell their gate.
        turn: the trace of its round.
    """
    gate = getattr(module, "head_gate", None)
    if not isinstance(gate, nn.Module):
        yield
        return
    hook = gate.register_forward_hook(lambda module, inputs, g: setattr(turn, "head_gate", g))
    try:
        yield
    finally:
        hook.remove()


def corrected_layers(model: nn.Module) -> dict[str, CorrectedAttention]:
    """Return the boosted attention modules of a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, CorrectedAttention)}
