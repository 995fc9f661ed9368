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

from boosted_attention.attention.gates import GATES
from boosted_attention.attention.options import HEADWISE_GATES
from boosted_attention.model.config import layer_indices
from boosted_attention.pretrained.auto import become_boosted, become_original
from boosted_attention.pretrained.layer import CorrectedAttention, corrected_layers
from boosted_attention.pretrained.places import find_attention
from boosted_attention.pretrained.stages import Stage, freeze, install, n_rounds_of
from boosted_attention.validation import is_count, require, require_choice

CORRECTION_INITS = ("copy", "random")
BOOST_TRAINS = ("correction", "all")


def boost(
    model: PreTrainedModel,
    *,
    n_rounds: int = 2,
    gate: str = "vector",
    layers: str | Sequence[int] = "all",
    init: str = "copy",
    train: str = "correction",
) -> PreTrainedModel:
    """Give a pretrained decoder correction rounds, in place, with no effect at the start. Returns the model.

        model = boost(AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M"))

    In a boosted layer the model's own attention is round 0, and copies of it are the corrections:

        F_0 = attention(x);   r_m = x - F_{m-1};   c_m = attention_m(r_m);   F_m = F_{m-1} + g_m * c_m

    x (B, T, hidden_size) is what the model feeds its attention, F (B, T, hidden_size) what it takes from it.
    Reference: "Gradient Boosting within a Single Attention Layer", Algorithm 1, https://arxiv.org/abs/2604.03190

    Args:
        model: a causal language model of transformers whose layers have one attention module each.
        n_rounds: rounds per boosted layer, the model's own attention among them. On a boosted model a larger number
            adds rounds; what is there stays.
        gate: "vector" (the paper's), "scalar", "mlp" or "none".
        layers: "all", "last:k", or indices, such as ``most_important(importance(model, rows), k)`` of the analysis.
        init: where a correction's queries and keys start: "copy" (round 0's) or "random".
        train: "correction" freezes everything but the new rounds and their gates; "all" trains the whole model.
    """
    require_boostable(model)
    require(is_count(n_rounds) and n_rounds >= 2, f"n_rounds={n_rounds!r} must be an integer of at least 2")
    require_choice("gate", gate, [name for name in GATES if name not in HEADWISE_GATES])
    require(
        gate != "tanh",
        "gate='tanh' starts at zero, and so do the values of a pretrained model's correction: the two would stall; use "
        "'vector', 'scalar', 'mlp' or 'none'",
    )
    require_choice("init", init, CORRECTION_INITS)
    require_choice("train", train, BOOST_TRAINS)
    places = find_attention(model)
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
    stage = Stage(layers=tuple(chosen), n_new=n_rounds - before, gate=gate)
    if not corrected_layers(model):
        model._frozen_before = frozenset(  # type: ignore[assignment]
            name for name, p in model.named_parameters() if not p.requires_grad
        )
    added = install(model, stage, init)
    become_boosted(model, stage)
    freeze(model, added if train == "correction" else None)
    return model


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
            setattr(layer, name, attention.original)
    become_original(model)
    freeze(model, None)
    frozen = vars(model).pop("_frozen_before", ())
    for name, p in model.named_parameters():
        p.requires_grad_(name not in frozen)
    return model
