"""boost(model): gives a pretrained decoder correction rounds, without any effect until they are trained.

A correction is a deep copy of the attention module it corrects, so that rotary embeddings, grouped heads, sliding
windows, kernels and masks are the model's own. Its value projection and every bias behind it are zero: it gives
exactly zero whatever it sees, and the model's outputs stay what they were, bit for bit. The gate starts at one half, so
that the first optimizer step moves the values and the second everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from boosted_attention.model.config import layer_indices
from boosted_attention.pretrained.auto import become_boosted, become_original
from boosted_attention.pretrained.families import find_projections
from boosted_attention.pretrained.guard import guarded
from boosted_attention.pretrained.layer import CorrectedAttention, become_uncorrected, corrected_layers
from boosted_attention.pretrained.light import low_rank_limit
from boosted_attention.pretrained.named import names_of
from boosted_attention.pretrained.places import attention_modules, find_attention
from boosted_attention.pretrained.quantised import QUANTISERS, is_quantised, quantiser
from boosted_attention.pretrained.stages import (
    CORRECTION_GATES,
    KV_SOURCES,
    LIGHT_GATES,
    Stage,
    freeze,
    install,
    n_rounds_of,
)
from boosted_attention.validation import is_count, require, require_choice

CORRECTION_INITS = ("copy", "random")
BOOST_TRAINS = ("correction", "all")


def boost(
    model: PreTrainedModel,
    *,
    n_rounds: int | None = None,
    gate: str | None = None,
    layers: str | Sequence[int] = "all",
    kv: str = "own",
    rank: int | None = None,
    init: str = "copy",
    train: str = "correction",
    name: str | None = None,
) -> PreTrainedModel:
    """Give a pretrained decoder correction rounds, in place, with no effect at the start. Returns the model.

        model = boost(AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M"))

    In a boosted layer the model's own attention is round 0, and copies of it are the corrections:

        F_0 = attention(x);   r_m = x - F_{m-1};   c_m = attention_m(r_m);   F_m = F_{m-1} + g_m * c_m

    x (B, T, hidden_size) is what the model feeds its attention, F (B, T, hidden_size) what it takes from it.
    Reference: "Gradient Boosting within a Single Attention Layer", Algorithm 1, https://arxiv.org/abs/2604.03190

    Args:
        model: a causal language model of transformers whose attention modules have a known form; layers without one,
            as hybrids have, are left alone. It reads a few tokens before and after, and is put back and refused if
            anything has changed.
        n_rounds: rounds per boosted layer, the model's own attention among them; 2 by default. On a boosted model a
            larger number adds rounds; what is there stays.
        gate: "vector" (the paper's, and the default of full corrections), "scalar" (the default of light ones), "mlp",
            "none"; with light corrections also "tanh", which starts at zero, and "headwise", one number per head.
        layers: "all", "last:k", or indices among the layers that have attention, negative ones from the end, such as
            ``most_important(importance(model, rows), k)`` of the analysis.
        kv: "own" keys and values of each correction, or round 0's, "shared", which need no further cache.
        rank: rank of the changes that corrections make to the model's own projections, which are read and not copied;
            None for full corrections, with matrices of their own.
        init: where a full correction's queries and keys start: "copy" (round 0's) or "random".
        train: "correction" freezes everything but the new rounds and their gates; "all" trains the whole model.
        name: name of this correction, by which it can be switched, removed and saved. With a name, a model that is
            boosted already gets one more round by default.
    """
    require_boostable(model, rank)
    require(
        n_rounds is None or (is_count(n_rounds) and n_rounds >= 2),
        f"n_rounds={n_rounds!r} must be an integer of at least 2",
    )
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
    if is_light:
        require_light(model, rank, shared=kv == "shared")
    chosen = sorted(layer_indices(layers, len(places), "layers"))
    require(bool(chosen), f"layers={layers!r} chooses no layer")
    stage = Stage(
        layers=tuple(chosen),
        n_new=1 if n_rounds is None and name is not None else rounds_to_add(model, chosen, n_rounds or 2),
        gate=gate,
        kv=kv,
        rank=rank,
        train=train,
        name=unused_name(model, name),
    )
    with guarded(model):
        remember_frozen(model)
        added = install(model, stage, init)
        become_boosted(model, stage)
        freeze(model, added if train == "correction" else None)
    return model


def require_boostable(model: Any, rank: int | None = None) -> None:
    """Raise InputError unless ``boost`` can take the model, with corrections of this rank."""
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
    if is_quantised(model):
        method = quantiser(model)
        require(
            method in QUANTISERS,
            f"{name} is quantised by {method}; boost takes quantised models of {' and '.join(QUANTISERS)}, or load it "
            "in a floating dtype",
        )
        require(
            rank is not None,
            f"{name} is quantised: its projections can be read, not copied; give corrections a rank, such as rank=16",
        )


def rounds_to_add(model: PreTrainedModel, layers: Sequence[int], n_rounds: int) -> int:
    """Return how many rounds these layers lack; they must all have as many now."""
    modules = attention_modules(model)
    have = {n_rounds_of(modules[i]) for i in layers}
    require(
        len(have) == 1,
        f"layers={list(layers)} have different numbers of rounds, {sorted(have)}; boost those with equal numbers "
        "together, or give the correction a name",
    )
    (before,) = have
    require(
        before < n_rounds,
        f"the model is boosted already: these layers have {before} rounds; n_rounds={before + 1} adds one, "
        "unboost(model) gives the original back",
    )
    return n_rounds - before


def unused_name(model: PreTrainedModel, name: str | None) -> str:
    """Return a correction's name, which no other of the model may have."""
    taken = names_of(model)
    if name is None:
        return next(one for i in count(1) if (one := "default" if i == 1 else f"default-{i}") not in taken)
    require(isinstance(name, str) and bool(name), f"name={name!r} must be a word")
    require(name not in taken, f"name={name!r} is taken: the model has corrections {', '.join(map(repr, taken))}")
    return name


def require_light(model: PreTrainedModel, rank: int | None, *, shared: bool) -> None:
    """Raise InputError unless light corrections of this rank can read the projections of the model's attention."""
    modules = attention_modules(model)
    for attention in modules:
        found = find_projections(attention)
        require(
            found is not None and bool(found.inputs),
            f"light corrections (kv='shared' or rank=...) need the projections of queries and keys, which are not "
            f"known in {type(attention).__name__}",
        )
    most = min(low_rank_limit(attention, shared=shared) for attention in modules)
    require(rank is None or (is_count(rank) and rank <= most), f"rank={rank!r} must be an integer from 1 to {most}")


def has_adapters(model: nn.Module) -> bool:
    """Say whether projections are wrapped by adapters, of peft or of transformers' own."""
    return any(hasattr(m, "base_layer") or hasattr(m, "lora_A") for m in model.modules())


def remember_frozen(model: PreTrainedModel) -> None:
    """Keep the names of what is frozen in a model that has no corrections yet, for ``unboost``."""
    if not corrected_layers(model):
        frozen = frozenset(name for name, p in model.named_parameters() if not p.requires_grad)
        model._frozen_before = frozen  # type: ignore[assignment]


def unboost(model: PreTrainedModel) -> PreTrainedModel:
    """Give the original model back, in place: its own attention modules, its class and config, what was trainable.

    Args:
        model: a model that ``boost`` has changed.
    """
    kind = type(model).__name__
    require(isinstance(model, nn.Module) and bool(corrected_layers(model)), f"{kind} is not boosted")
    require(
        isinstance(model, PreTrainedModel) and not has_adapters(model),
        f"{kind} has adapters (LoRA), which stand on the boosted model; merge or unload them first",
    )
    for layer, name in find_attention(model):
        attention = getattr(layer, name)
        if isinstance(attention, CorrectedAttention):
            become_uncorrected(attention)
    become_original(model)
    freeze(model, None)
    frozen = vars(model).pop("_frozen_before", ())
    for name, p in model.named_parameters():
        if name in frozen:
            p.requires_grad_(False)
    return model
