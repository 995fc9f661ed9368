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
    """Return (module around it, attribute) of every attention module, in order.

    Layers without one, or with one of another form, as hybrids have, are left out.

    Raises:
        InputError: no layer has an attention module of a known form; the message says what was found instead.
    """
    candidates = [place for layer in decoder_layers(model) for place in places_in(layer)]
    found = [place for place in candidates if known(getattr(*place))]
    if not found:
        names = {f"{name}: {type(getattr(layer, name)).__name__}" for layer, name in candidates}
        seen = sorted({type(m).__name__ for m in model.modules() if "ttention" in type(m).__name__})
        listed = shortened(sorted(names)) if names else f"attention modules: {shortened(seen) if seen else 'none'}"
        values = ", ".join(dict.fromkeys(way.name for way in VALUE_PROJECTIONS))
        raise InputError(
            f"{type(model).__name__} cannot be boosted: its layers have no attention module with known projections "
            f"({values} and {', '.join(OUTPUT_PROJECTIONS)}); found {listed}"
        )
    return found


def places_in(layer: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return where a layer has attention modules; a module that only wraps another one is passed through."""
    found = [(layer, name) for name in ATTENTION_NAMES if isinstance(getattr(layer, name, None), nn.Module)]
    inside = [
        place for outer, name in found if not known(getattr(outer, name)) for place in places_in(getattr(outer, name))
    ]
    return [place for place in found if known(getattr(*place))] + inside or found


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """Return every attention module of a model, in order."""
    return [getattr(layer, name) for layer, name in find_attention(model)]


def n_cache_layers(model: nn.Module) -> int:
    """Return how many layers a model's own cache has: one per decoder layer, with attention or without."""
    return len(decoder_layers(model))


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
