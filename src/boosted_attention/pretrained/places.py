"""Where the attention modules of a model are."""

from __future__ import annotations

from torch import nn

from boosted_attention.pretrained.families import (
    ATTENTION_NAMES,
    OUTPUT_PROJECTIONS,
    VALUE_PROJECTIONS,
    find_projections,
)
from boosted_attention.pretrained.layer import CorrectedAttention
from boosted_attention.validation import InputError, shortened


def find_attention(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return (decoder layer, attribute) of every attention module, in order.

    Raises:
        InputError: a layer has no attention module of a known form; the message says what was found instead.
    """
    layers = decoder_layers(model)
    found = [
        (layer, name)
        for layer in layers
        for name in ATTENTION_NAMES
        if isinstance(getattr(layer, name, None), nn.Module)
    ]
    wrong = [
        f"{name}: {type(getattr(layer, name)).__name__}" for layer, name in found if not known(getattr(layer, name))
    ]
    if found and not wrong and len({id(layer) for layer, _ in found}) != len(layers):
        kinds = sorted({type(layer).__name__ for layer in layers})
        raise InputError(
            f"{type(model).__name__} cannot be boosted: only {len(found)} of its {len(layers)} layers have an "
            f"attention module of their own ({', '.join(kinds)})"
        )
    if not found or wrong:
        seen = sorted({type(m).__name__ for m in model.modules() if "ttention" in type(m).__name__})
        listed = shortened(sorted(set(wrong))) if wrong else f"attention modules: {shortened(seen) if seen else 'none'}"
        raise InputError(
            f"{type(model).__name__} cannot be boosted: its layers have no attention module with known projections "
            f"({', '.join(VALUE_PROJECTIONS)} and {', '.join(OUTPUT_PROJECTIONS)}); found {listed}"
        )
    return found


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """Return every attention module of a model, in order."""
    return [getattr(layer, name) for layer, name in find_attention(model)]


def known(module: nn.Module) -> bool:
    """Say whether boosting knows what to do with an attention module."""
    return isinstance(module, CorrectedAttention) or find_projections(module) is not None


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """Return the longest list of modules with attention modules among their children."""
    lists = [
        list(m)
        for m in model.modules()
        if isinstance(m, nn.ModuleList) and any(hasattr(layer, name) for layer in m for name in ATTENTION_NAMES)
    ]
    return max(lists, key=len, default=[])
