"""What of a pretrained model is trained: its corrections, everything, or adapters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel

from boosted_attention.pretrained.conversion import boost
from boosted_attention.pretrained.families import find_projections
from boosted_attention.pretrained.layer import corrected_layers
from boosted_attention.pretrained.places import attention_modules
from boosted_attention.pretrained.stages import freeze
from boosted_attention.validation import InputError, require

TRAINED_PARTS = ("correction", "all", "lora")


def with_trained_parts(
    model: PreTrainedModel, *, boost_options: Mapping[str, Any] | None, train: str, lora_rank: int, name: str
) -> Any:
    """Add what is to be trained to a model, in place, freeze the rest, and return the model or peft's around it.

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
    corrected = corrected_layers(model).values()
    require(bool(corrected), f"train='correction': {name} is not boosted; boost(model) makes it so")
    freeze(model, [m for layer in corrected for m in (*layer.corrections, *layer.gates)])
    return model


def with_lora(model: PreTrainedModel, rank: int) -> Any:
    """Add adapters to every projection of the attention.

    References: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022; for the scale Kalajdzievski,
    "A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA", 2023.

    Args:
        model: a model of transformers.
        rank: rank of the adapters.
    """
    try:
        import peft
    except ImportError:
        raise InputError("train='lora' needs peft (pip install 'boosted-attention[hf]')") from None
    names = set()
    for module in attention_modules(model):
        found = find_projections(module)
        assert found is not None
        names |= {name for name, m in module.named_modules() if m in found.linears}
    # 2 at rank 8, as usual, and falling with the root of the rank: one learning rate then serves all ranks
    scale: Any = 2 * math.sqrt(8)
    options = peft.LoraConfig(r=rank, use_rslora=True, lora_alpha=scale, target_modules=sorted(names), lora_dropout=0.0)
    return peft.get_peft_model(model, options)
