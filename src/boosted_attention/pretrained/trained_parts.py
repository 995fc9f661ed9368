"""What of a pretrained model is trained: its corrections, everything, or adapters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel

from boosted_attention.pretrained.conversion import boost
from boosted_attention.pretrained.families import find_projections
from boosted_attention.pretrained.layer import corrected_layers
from boosted_attention.pretrained.named import print_trainable_parameters
from boosted_attention.pretrained.places import attention_modules
from boosted_attention.pretrained.stages import freeze
from boosted_attention.validation import InputError, is_count, require

TRAINED_PARTS = ("correction", "all", "lora")
COPIED = ".modules_to_save.default."  # in the names of peft's copies


def with_trained_parts(
    model: PreTrainedModel, *, boost_options: Mapping[str, Any] | None, train: str, lora_rank: int, name: str
) -> Any:
    """Add what is to be trained to a model, in place, freeze the rest, and return the model or peft's around it.

    Corrections that are frozen stay so unless all are.

    Args:
        model: a model of transformers, boosted or not.
        boost_options: options of ``boost``; None adds no rounds.
        train: a name from TRAINED_PARTS.
        lora_rank: rank of the adapters of "lora".
        name: what to call the model in a message.
    """
    if boost_options is not None:
        boost(model, **boost_options)
    if train == "lora":
        return with_lora(model, lora_rank)
    if train == "all":
        freeze(model, None)
        return model
    corrections = [p for layer in corrected_layers(model).values() for p in layer.correction_parameters()]
    require(bool(corrections), f"train='correction': {name} is not boosted; boost(model) makes it so")
    trained = [p for p in corrections if p.requires_grad] or corrections
    freeze(model, [])
    for p in trained:
        p.requires_grad_(True)
    return model


def with_lora(model: PreTrainedModel, rank: int, **more: Any) -> Any:
    """Add adapters to every projection of the attention, and freeze everything else.

    References: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022; for the scale Kalajdzievski,
    "A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA", 2023.

    Args:
        model: a model of transformers, boosted or not; corrections get no adapters.
        rank: rank of the adapters.
        more: further options of peft's configuration.
    """
    try:
        import peft
    except ImportError:
        raise InputError("train='lora' needs peft (pip install 'boosted-attention[hf]')") from None
    projections = [find_projections(module) for module in attention_modules(model)]
    chosen = {id(linear) for found in projections if found is not None for linear in found.linears}
    # The factor is 2 at rank 8, as usual, and falls with the root of the rank: one learning rate then serves all ranks.
    scale: Any = 2 * math.sqrt(8)
    options = peft.LoraConfig(
        r=rank,
        use_rslora=True,
        lora_alpha=scale,
        target_modules=[name for name, module in model.named_modules() if id(module) in chosen],
        lora_dropout=0.0,
        **more,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)  # which peft still asks for
        return peft.get_peft_model(model, options)


def add_lora(model: PreTrainedModel, rank: int = 16) -> Any:
    """Add LoRA to a boosted model, leave its corrections trainable, print both counts, and return peft's model.

    What is trained of the corrections is peft's ``modules_to_save``: copies, which are saved, loaded and unloaded with
    the adapters, and switched off with them.

    Args:
        model: a boosted model.
        rank: rank of the adapters, which every projection of the model's own attention gets.
    """
    require(bool(corrected_layers(model)), f"{type(model).__name__} is not boosted; boost(model) makes it so")
    require(is_count(rank), f"rank={rank!r} must be an integer of at least 1")
    parts = [part for layer in corrected_layers(model).values() for part in layer.correction_parts()]
    names = {id(module): name for name, module in model.named_modules()}
    kept = [names[id(part)] for part in parts if any(p.requires_grad for p in part.parameters())]
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    adapted = with_lora(model, rank, task_type="CAUSAL_LM", modules_to_save=kept or None)
    for name, p in adapted.get_base_model().named_parameters():
        if COPIED in name:
            p.requires_grad_(name.replace(COPIED, ".") in trained)
    print_trainable_parameters(adapted)
    return adapted
