"""Stages of boosting: the rounds that one call of ``boost`` adds to a model."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from boosted_attention.attention.gates import GATES
from boosted_attention.pretrained.families import CACHE_INDICES, cache_index_name, redraw, silence
from boosted_attention.pretrained.layer import CorrectedAttention, become_corrected, original_view, shares_kv
from boosted_attention.pretrained.light import Follower, light_correction, without_linear
from boosted_attention.pretrained.places import find_attention, n_cache_layers
from boosted_attention.validation import InputError, is_count, require

KV_SOURCES = ("own", "shared")
LIGHT_GATES = ("tanh", "headwise")
CORRECTION_GATES = ("vector", "scalar", "mlp", "none", *LIGHT_GATES)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What one call of ``boost`` added; a model's config keeps the stages in order.

    Args:
        layers: indices of the layers that got rounds, among those with attention.
        n_new: rounds added to each.
        gate: kind of their gates.
        kv: whether keys and values are a correction's "own" or round 0's, "shared".
        rank: rank of the changes to the model's own projections; None for matrices of the corrections' own.
        name: name of the correction that these rounds are.
        train: whether these rounds alone were to be trained, "correction", or "all".
    """

    layers: tuple[int, ...]
    n_new: int
    gate: str
    kv: str = "own"
    rank: int | None = None
    name: str = "default"
    train: str = "correction"

    @property
    def is_light(self) -> bool:
        """Whether its corrections read the model's own projections or keys instead of copying the module."""
        return self.kv == "shared" or self.rank is not None

    def is_sound(self, n_layers: int) -> bool:
        """Whether its values, which may come from a file, are such as ``boost`` makes for so many layers."""
        return (
            self.gate in CORRECTION_GATES
            and self.kv in KV_SOURCES
            and is_count(self.n_new)
            and (self.rank is None or is_count(self.rank))
            and isinstance(self.name, str)
            and all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < n_layers for i in self.layers)
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "layers": list(self.layers)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Stage:
        return cls(**{**values, "layers": tuple(values["layers"])})


def read_stages(values: Any, n_layers: int, what: str) -> list[Stage]:
    """Return the stages that a file names.

    Args:
        values: what the file has of them.
        n_layers: layers with attention of the model that they are for.
        what: the file, for messages.

    Raises:
        InputError: they are not such as ``boost`` makes for so many layers.
    """
    try:
        stages = [Stage.from_dict(stage) for stage in values]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{what} is damaged: what it says of its corrections cannot be read") from None
    whole = bool(stages) and all(stage.is_sound(n_layers) for stage in stages)
    require(whole, f"{what} is damaged, or corrects a model with other layers than these {n_layers}")
    return stages


def n_rounds_of(attention: nn.Module) -> int:
    """Return the number of rounds of an attention module, 1 for one that is not boosted."""
    return attention.n_rounds if isinstance(attention, CorrectedAttention) else 1


def install(model: PreTrainedModel, stage: Stage, init: str = "copy") -> list[nn.Module]:
    """Add a stage's rounds to a model, and return the modules that are new."""
    places, new = find_attention(model), []
    for i in stage.layers:
        attention = become_corrected(getattr(*places[i]))
        weight = next(attention.parameters())
        for _ in range(stage.n_new):
            correction = copied_correction(model, attention, init) if not stage.is_light else None
            with weight.device:  # loading has a device of its own, on which not every model's weights are made
                if correction is None:
                    correction = made_light(model, attention, stage)
                gate = make_gate(stage.gate, model.config.hidden_size).to(model.dtype)
            attention.add(correction, gate)
            new += [correction, gate]
    protect(new)
    number_slots([getattr(layer, name) for layer, name in places], n_cache_layers(model))
    for module in new:
        module.train(model.training)
    return new


def copied_correction(model: PreTrainedModel, attention: CorrectedAttention, init: str) -> nn.Module:
    """Return a copy of an attention module that gives zero whatever it sees."""
    original = original_view(attention)
    shared = {id(m.config): m.config for m in original.modules() if hasattr(m, "config")}
    correction = copy.deepcopy(original, shared)  # type: ignore[arg-type]  # one config for all
    if init == "random":
        redraw(correction, getattr(model.config, "initializer_range", 0.02))
    silence(correction)
    return correction


def made_light(model: PreTrainedModel, attention: CorrectedAttention, stage: Stage) -> nn.Module:
    """Return a light correction of an attention module, in the dtype that the model computes in."""
    heads = model.config.get_text_config().num_attention_heads
    shared = stage.kv == "shared"
    made = light_correction(attention, rank=stage.rank, shared=shared, n_heads=heads, gate=stage.gate)
    return made.to(model.dtype)


def make_gate(kind: str, d: int) -> nn.Module:
    """Make a gate that is one half everywhere at the start, or zero for "tanh"; "headwise" is in the correction."""
    gate = GATES["none" if kind == "headwise" else kind](d)
    if isinstance(getattr(gate, "proj", None), nn.Linear):
        nn.init.zeros_(gate.proj.weight)  # type: ignore[union-attr, arg-type]
        nn.init.zeros_(gate.proj.bias)  # type: ignore[union-attr, arg-type]
    without_linear(gate)
    return gate


def number_slots(attentions: Sequence[nn.Module], n_own: int) -> None:
    """Give the corrections cache layers behind the model's own, ``n_own`` of them, in the order they run."""
    slot = n_own
    for attention in attentions:
        if isinstance(attention, CorrectedAttention):
            for correction in attention.corrections:
                if not shares_kv(correction):
                    setattr(correction, cache_index_name(attention) or CACHE_INDICES[0], slot)
                    slot += 1


def protect(modules: Iterable[nn.Module]) -> None:
    """Tell transformers' initialisation that these modules have their weights; it may still fill buffers."""
    for module in modules:
        for p in module.parameters():
            p._is_hf_initialized = True  # type: ignore[attr-defined]
        if isinstance(module, Follower):  # whose parts are not those that the model's code would fill
            for part in module.modules():
                part._is_hf_initialized = True  # type: ignore[assignment]


def freeze(model: PreTrainedModel, trained: Sequence[nn.Module] | None) -> None:
    """Make these modules alone trainable, or everything for None."""
    chosen = None if trained is None else {id(p) for module in trained for p in module.parameters()}
    for p in model.parameters():
        if p.is_floating_point():  # quantised weights are integers
            p.requires_grad_(chosen is None or id(p) in chosen)
