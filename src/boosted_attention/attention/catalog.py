"""The catalog: a name for every layer and for every arm a comparison needs."""

import inspect
from typing import Any, NamedTuple

from boosted_attention.attention.config import CommonOptions
from boosted_attention.attention.differential import DifferentialAttention
from boosted_attention.attention.equilibrium import EquilibriumAttention
from boosted_attention.attention.gated import GatedAttention
from boosted_attention.attention.hopfield import HopfieldAttention
from boosted_attention.attention.layer import AttentionLayer, BoostedAttention, StandardAttention
from boosted_attention.attention.twicing import TwicingAttention
from boosted_attention.validation import nearest, require, require_choice


class Entry(NamedTuple):
    layer: type[AttentionLayer]
    preset: dict[str, Any]


CATALOG: dict[str, Entry] = {
    "standard": Entry(StandardAttention, {}),
    "boosted": Entry(BoostedAttention, {}),
    "boosted-input": Entry(BoostedAttention, {"kv_source": "input"}),
    "boosted-shared": Entry(BoostedAttention, {"kv_source": "shared"}),
    "boosted-output": Entry(BoostedAttention, {"space": "output"}),
    "boosted-differential": Entry(BoostedAttention, {"learner": "differential"}),
    "boosted-gated": Entry(BoostedAttention, {"learner": "gated"}),
    "parallel": Entry(BoostedAttention, {"residual": "input"}),
    "sequential": Entry(BoostedAttention, {"residual": "estimate"}),
    "twicing": Entry(TwicingAttention, {}),
    "differential": Entry(DifferentialAttention, {}),
    "differential-v2": Entry(DifferentialAttention, {"version": 2}),
    "gated": Entry(GatedAttention, {}),
    "gated-headwise": Entry(GatedAttention, {"granularity": "headwise"}),
    "hopfield": Entry(HopfieldAttention, {}),
    "equilibrium": Entry(EquilibriumAttention, {}),
}


def list_attention() -> list[str]:
    """The names ``attention_layer`` knows."""
    return list(CATALOG)


def attention_layer(name: str, **options: Any) -> AttentionLayer:
    """Build a layer by name: ``attention_layer("boosted", d_model=256, n_heads=4, n_rounds=3)``.

    An entry's preset gives way to the options passed.
    """
    require_choice("attention", name, CATALOG)
    layer, preset = CATALOG[name]
    allowed = option_names(layer)
    for option in options:
        require(
            option in allowed,
            f"{name!r} attention has no option {option!r}{nearest(option, allowed)} (options: {', '.join(allowed)})",
        )
    for option in ("d_model", "n_heads"):
        require(option in options, f"{name!r} attention needs {option}")
    return layer(**{**preset, **options})


def option_names(layer: type[AttentionLayer]) -> list[str]:
    """The keywords a layer class takes."""
    parameters = inspect.signature(layer).parameters.values()
    own = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    return own + [name for name in CommonOptions.__annotations__ if name not in own]
