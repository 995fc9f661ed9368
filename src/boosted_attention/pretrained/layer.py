"""A pretrained model's own attention as round 0, and copies of it as corrections: the one boosting loop, output space.

    F_0 = attention(x);   r_m = x - F_{m-1};   c_m = attention_m(r_m);   F_m = F_{m-1} + g_m * c_m

x is what the model feeds its attention (after its norm), F what the attention returns (after its output projection).
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from boosted_attention.attention.boosting import boosting
from boosted_attention.attention.residuals import ErrorResidual
from boosted_attention.attention.trace import Traced
from boosted_attention.pretrained.caching import extend


class CorrectedAttention(Traced):
    """Takes the place of an attention module: same arguments, same results, with corrections in between.

    Weights: ``rounds.0.*`` the original's, ``rounds.{m}.*`` the corrections', ``gates.{m-1}.*``.
    """

    def __init__(self, original: nn.Module):
        super().__init__()
        self.rounds = nn.ModuleList([original])
        self.gates = nn.ModuleList()
        self.residuals = nn.ModuleList()
        self.n_rounds = 1

    @property
    def original(self) -> nn.Module:
        return self.rounds[0]

    def add(self, correction: nn.Module, gate: nn.Module) -> None:
        """Add one more round; its ``layer_idx`` is the cache layer of its keys and values and has no other use."""
        self.rounds.append(correction)
        self.gates.append(gate)
        self.residuals.append(ErrorResidual())
        self.n_rounds += 1

    def __getattr__(self, name: str) -> Any:
        """Return what the model's code reads of its attention (layer_idx, head_dim, ...) from the original."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            rounds: Any = super().__getattr__("rounds")
            return getattr(rounds[0], name)

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        named = "hidden_states" in kwargs
        x: Tensor = kwargs.pop("hidden_states") if named else args[0]
        args = args if named else args[1:]
        cache = next((value for value in (*args, *kwargs.values()) if isinstance(value, Cache)), None)
        active = [m for m in range(self.n_rounds) if m not in self.disabled]
        rest: Any = ()
        trace = self.trace
        if trace is not None:
            trace.begin(len(active))

        def learn(m: int, z: Tensor) -> Tensor:
            nonlocal rest
            if m and cache is not None:
                extend(cache, self.original.layer_idx, self.rounds[m].layer_idx, z.shape[1])  # type: ignore[arg-type]
            call = self.rounds[m] if m == 0 else self.rounds[m].forward  # hooks record the model's own attention only
            made = call(z, *args, **kwargs) if trace is None else traced_call(self.rounds[m], call, z, args, kwargs)
            y, *others = made
            if trace is not None:
                trace.rounds[active.index(m)].weights = others[0]
            rest = made[1:] if m == 0 else rest  # a tuple, or what the model takes
            return y

        learners = [partial(learn, m) for m in active]
        gates, residuals = ([part[m - 1] for m in active[1:]] for part in (self.gates, self.residuals))
        estimate = boosting(x, learners, gates, residuals, None if trace is None else trace.observe)
        return type(rest)([estimate, *rest])


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


def corrected_layers(model: nn.Module) -> dict[str, CorrectedAttention]:
    """Return the boosted attention modules of a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, CorrectedAttention)}
