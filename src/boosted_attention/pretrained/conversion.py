"""boost(model): gives a pretrained decoder correction rounds, without any effect until they are trained.

A correction is a deep copy of the attention module it corrects, so that rotary embeddings, grouped heads, sliding
windows, kernels and masks are the model's own. Its value projection and every bias behind it are zero: it gives
exactly zero whatever it sees, and the model's outputs stay what they were, bit for bit. The gate starts at one half, so
that the first optimizer step moves the values and the second everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from boosted_attention.model.config import layer_indices
from boosted_attention.pretrained.auto import become_boosted, become_original
from boosted_attention.pretrained.families import find_projections, widths
from boosted_attention.pretrained.guard import guarded
from boosted_attention.pretrained.layer import CorrectedAttention, become_uncorrected, corrected_layers
from boosted_attention.pretrained.places import find_attention
from boosted_attention.pretrained.stages import Stage, freeze, install, n_rounds_of
from boosted_attention.validation import is_count, require, require_choice

CORRECTION_INITS = ("copy", "random")
BOOST_TRAINS = ("correction", "all")
KV_SOURCES = ("own", "shared")
LIGHT_GATES = ("tanh", "headwise")
CORRECTION_GATES = ("vector", "scalar", "mlp", "none", *LIGHT_GATES)


def boost(
    model: PreTrainedModel,
    *,
    n_rounds: int = 2,
    gate: str | None = None,
    layers: str | Sequence[int] = "all",
    kv: str = "own",
    rank: int | None = None,
    init: str = "copy",
    train: str = "correction",
) -> PreTrainedModel:
    """Give a pretrained decoder correction rounds, in place, with no effect at the start. Returns the model.

        model = boost(AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M"))

    Args:
        model: a causal language model of transformers whose attention modules have a known form; layers without one,
            as hybrids have, are left alone. It reads a few tokens before and after, and is put back and refused if
            anything has changed.
        n_rounds: rounds per boosted layer, the model's own attention among them. On a boosted model a larger number
            adds rounds; what is there stays.
        gate: "vector" (the paper's, and the default of full corrections), "scalar" (the default of light ones), "mlp",
            "none"; with light corrections also "tanh", which starts at zero, and "headwise", one number per head.
        layers: "all", "last:k", or indices among the layers that have attention, negative ones from the end, such as
            ``most_important(importance(model, rows), k)`` of the analysis.
        kv: "own" keys and values of each correction, or round 0's, "shared", which need no further cache.
        rank: rank of the changes that corrections make to the model's own projections, which are read and not copied;
            None for full corrections, with matrices of their own.
        init: where a full correction's queries and keys start: "copy" (round 0's) or "random".
        train: "correction" freezes everything but the new rounds and their gates; "all" trains the whole model.
    """
    require_boostable(model)
    require(is_count(n_rounds) and n_rounds >= 2, f"n_rounds={n_rounds!r} must be an integer of at least 2")
    require_choice("kv", kv, KV_SOURCES)
    is_light = kv == "shared" or rank is not None
    gate = gate or ("scalar" if is_light else "vector")
    require_choice("gate", gate, CORRECTION_GATES)
    require(
        is_light or gate not in LIGHT_GATES,
        f"gate={gate!r} is for light corrections (kv='shared' or rank=...); use 'vector', 'scalar', 'mlp' or 'none'",
    )
    require_choice("init", init, CORRECTION_INITS)
    require(init == "copy" or not is_light, f"init={init!r}: light corrections start as the model's own projections")
    require_choice("train", train, BOOST_TRAINS)
    places = find_attention(model)
    read = [linear for place in places for linear in projections_read(getattr(*place))] if is_light else []
    if rank is not None:
        narrowest = min(min(widths(linear)) for linear in read)
        require(is_count(rank) and rank <= narrowest, f"rank={rank!r} must be an integer from 1 to {narrowest}")
    chosen = sorted(layer_indices(layers, len(places), "layers"))
    require(bool(chosen), f"layers={layers!r} chooses no layer")
    have = {n_rounds_of(getattr(*places[i])) for i in chosen}
    require(
        len(have) == 1,
        f"layers={layers!r} have different numbers of rounds, {sorted(have)}; boost those with equal numbers together",
    )
    (before,) = have
    require(
        before < n_rounds,
        f"the model is boosted already: these layers have {before} rounds; n_rounds={before + 1} adds one, "
        "unboost(model) gives the original back",
    )
    stage = Stage(layers=tuple(chosen), n_new=n_rounds - before, gate=gate, kv=kv, rank=rank, train=train)
    with guarded(model):
        if not corrected_layers(model):
            model._frozen_before = frozenset(  # type: ignore[assignment]
                name for name, p in model.named_parameters() if not p.requires_grad
            )
        added = install(model, stage, init)
        become_boosted(model, stage)
        freeze(model, added if train == "correction" else None)
    return model


def projections_read(attention: nn.Module) -> list[nn.Module]:
    """Return the projections that a light correction of an attention module reads or replaces."""
    found = find_projections(attention)
    require(
        found is not None and bool(found.inputs),
        f"light corrections (kv='shared' or rank=...) need the projections of queries and keys, which are not known in "
        f"{type(attention).__name__}",
    )
    assert found is not None
    return [*(getattr(attention, name) for name in found.inputs), found.output]


def require_boostable(model: Any) -> None:
    """Raise InputError unless ``boost`` can take the model."""
    name = type(model).__name__
    require(
        isinstance(model, PreTrainedModel),
        f"boost takes a model of transformers, got {name}"
        + ("; boost the base model, then add the adapter" if "Peft" in name else ""),
    )
    require(
        not getattr(model.config, "is_encoder_decoder", False),
        f"{name} is an encoder-decoder model; boost takes decoders (causal language models)",
    )
    require(
        model.config.get_text_config() is model.config,
        f"{name} is a model of several modalities; boost takes causal language models, such as the one inside it",
    )
    require(
        not has_adapters(model),
        f"{name} has adapters (LoRA): what they add would not be zero at the start; merge or unload them first",
    )
    require(model.can_generate(), f"{name} is not a causal language model; boost takes decoders that generate")
    require(
        not is_quantised(model),
        f"{name} is quantised: its attention modules cannot be copied and zeroed; load it in a floating dtype",
    )


def has_adapters(model: nn.Module) -> bool:
    """Say whether projections are wrapped by adapters, of peft or of transformers' own."""
    return any(hasattr(m, "base_layer") or hasattr(m, "lora_A") for m in model.modules())


def is_quantised(model: PreTrainedModel) -> bool:
    """Say whether weights are quantised: by transformers, as integers, or packed away behind a method."""
    by_transformers = getattr(model, "is_quantized", False) or getattr(model, "hf_quantizer", None) is not None
    packed = any(callable(weight) for m in model.modules() if (weight := getattr(m, "weight", None)) is not None)
    return by_transformers or packed or not all(p.is_floating_point() for p in model.parameters())


def unboost(model: PreTrainedModel) -> PreTrainedModel:
    """Give the original model back, in place: its own attention modules, its class and config, what was trainable.

    Args:
        model: a model that ``boost`` has changed.
    """
    require(bool(corrected_layers(model)), f"{type(model).__name__} is not boosted")
    for layer, name in find_attention(model):
        attention = getattr(layer, name)
        if isinstance(attention, CorrectedAttention):
            become_uncorrected(attention)
    become_original(model)
    freeze(model, None)
    frozen = vars(model).pop("_frozen_before", ())
    for name, p in model.named_parameters():
        p.requires_grad_(name not in frozen)
    return model
