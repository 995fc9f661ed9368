"""The catalog: a name for every layer and for every arm a comparison needs.

The entries below are those of softmax attention; every file of ``attention/learners`` adds its own. Importing this
module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from boosted_attention.attention.discovery import discover
from boosted_attention.attention.options import LAYER_DEFAULTS, OPTION_NAMES, LayerOptions
from boosted_attention.validation import require, require_choice

if TYPE_CHECKING:
    from boosted_attention.attention.layer import AttentionLayer


@dataclass(frozen=True)
class Entry:
    """A layer class, or its name in ``attention/layer.py``, and the options that make the entry."""

    layer: type[AttentionLayer] | str
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def layer_class(self) -> type[AttentionLayer]:
        """Return the layer class, importing it where the entry holds its name."""
        if not isinstance(self.layer, str):
            return self.layer
        from boosted_attention.attention import layer

        return getattr(layer, self.layer)


CATALOG: dict[str, Entry] = {
    "standard": Entry("StandardAttention"),
    "boosted": Entry("BoostedAttention"),
    "boosted-input": Entry("BoostedAttention", {"kv_source": "input"}),
    "boosted-shared": Entry("BoostedAttention", {"kv_source": "shared"}),
    "boosted-output": Entry("BoostedAttention", {"space": "output"}),
    "boosted-normalised": Entry("BoostedAttention", {"residual": "normalised"}),
    "parallel": Entry("BoostedAttention", {"residual": "input"}),
    "sequential": Entry("BoostedAttention", {"residual": "estimate"}),
}


def register_layer(name: str, layer: type[AttentionLayer], **defaults: Any) -> None:
    """Enter a layer into the catalog.

    Args:
        name: catalog name, as in ``attention_layer(name, ...)``.
        layer: the layer class.
        defaults: options of the entry, which give way to options passed.
    """
    discover()  # so that the package's own entries come first
    require(name not in CATALOG, f"name={name!r} is in the catalog already; choose another")
    CATALOG[name] = Entry(layer, defaults)


def list_attention() -> list[str]:
    """Return the names ``attention_layer`` knows."""
    discover()
    return list(CATALOG)


def find_entry(name: str) -> Entry:
    """Return the entry of a name, or raise InputError with the nearest one."""
    if name not in CATALOG:
        discover()
    require_choice("attention", name, CATALOG)
    return CATALOG[name]


def attention_layer(name: str, **options: Any) -> AttentionLayer:
    """Build a layer by name: ``attention_layer("boosted", d_model=256, n_heads=4, n_rounds=3)``.

    The layer maps x (B, T, d_model) to (B, T, d_model).

    Args:
        name: one of ``list_attention()``.
        options: options of the layer, see ``help(BoostedAttention)``, and of its learner; ``d_model`` and ``n_heads``
            are required. They take precedence over the entry's own.
    """
    entry = find_entry(name)
    for option in ("d_model", "n_heads"):
        require(option in options, f"{name!r} attention needs {option}")
    return entry.layer_class()(**{**entry.defaults, **options})


def check_layer(name: str, **options: Any) -> LayerOptions:
    """Return the options of the layer that ``attention_layer`` would build, or raise InputError.

    Softmax attention is checked without torch; other learners are asked themselves, on the meta device.
    """
    entry = find_entry(name)
    if isinstance(entry.layer, str):
        given = {**LAYER_DEFAULTS[entry.layer], **entry.defaults, **options}
        if given.get("learner", "softmax") == "softmax" and given.keys() <= set(OPTION_NAMES) - {"learner_options"}:
            return LayerOptions(**given)
    from boosted_attention.shapes import shapes_only

    with shapes_only():
        return attention_layer(name, **options).config
