"""Stages of boosting: the rounds that one call of ``boost`` adds to a model."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from boosted_attention.attention.gates import GATES
from boosted_attention.pretrained.families import redraw, silence
from boosted_attention.pretrained.layer import CorrectedAttention
from boosted_attention.pretrained.places import find_attention


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What one call of ``boost`` added; a model's config keeps the stages in order.

    Args:
        layers: indices of the layers that got rounds.
        n_new: rounds added to each.
        gate: kind of their gates.
    """

    layers: tuple[int, ...]
    n_new: int
    gate: str

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "layers": list(self.layers)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Stage:
        return cls(layers=tuple(values["layers"]), n_new=values["n_new"], gate=values["gate"])


def n_rounds_of(attention: nn.Module) -> int:
    """Return the number of rounds of an attention module, 1 for one that is not boosted."""
    return attention.n_rounds if isinstance(attention, CorrectedAttention) else 1


def install(model: PreTrainedModel, stage: Stage, init: str = "copy") -> list[nn.Module]:
    """Add a stage's rounds to a model, and return the modules that are new."""
    places, new = find_attention(model), []
    for i in stage.layers:
        layer, name = places[i]
        if not isinstance(getattr(layer, name), CorrectedAttention):
            setattr(layer, name, CorrectedAttention(getattr(layer, name)))
        attention: CorrectedAttention = getattr(layer, name)
        for _ in range(stage.n_new):
            shared = {id(m.config): m.config for m in attention.original.modules() if hasattr(m, "config")}
            correction = copy.deepcopy(attention.original, shared)  # type: ignore[arg-type]  # one config for all
            weight = next(attention.original.parameters())
            if init == "random":
                redraw(correction, getattr(model.config, "initializer_range", 0.02))
            silence(correction)
            with weight.device:  # loading has a device of its own, on which not every model's weights are made
                gate = make_gate(stage.gate, model.config.hidden_size).to(weight.dtype)
            attention.add(correction, gate)
            new += [correction, gate]
    protect(new)
    number_slots([getattr(layer, name) for layer, name in places])
    for module in new:
        module.train(model.training)
    return new


def make_gate(kind: str, d: int) -> nn.Module:
    """Make a gate that is one half everywhere at the start."""
    gate = GATES[kind](d)
    if isinstance(getattr(gate, "proj", None), nn.Linear):
        nn.init.zeros_(gate.proj.weight)  # type: ignore[union-attr, arg-type]
        nn.init.zeros_(gate.proj.bias)  # type: ignore[union-attr, arg-type]
    return gate


def number_slots(attentions: Sequence[nn.Module]) -> None:
    """Give the corrections cache layers behind the model's own, in the order they run."""
    slot = len(attentions)
    for attention in attentions:
        if isinstance(attention, CorrectedAttention):
            for m in range(1, attention.n_rounds):
                attention.rounds[m].layer_idx = slot  # type: ignore[assignment]
                slot += 1


def protect(modules: Iterable[nn.Module]) -> None:
    """Tell transformers' initialisation that these modules have their weights; it may still fill buffers."""
    for module in modules:
        for p in module.parameters():
            p._is_hf_initialized = True  # type: ignore[attr-defined]


def freeze(model: PreTrainedModel, trained: Sequence[nn.Module] | None) -> None:
    """Make these modules alone trainable, or everything for None."""
    chosen = None if trained is None else {id(p) for module in trained for p in module.parameters()}
    for p in model.parameters():
        p.requires_grad_(chosen is None or id(p) in chosen)
