"""Attention layers that correct their own errors: gradient boosting within a single layer."""

from typing import TYPE_CHECKING

from boosted_attention.attention.cache import KVCache
from boosted_attention.attention.catalog import attention_layer, list_attention
from boosted_attention.attention.differential import DifferentialAttention
from boosted_attention.attention.equilibrium import EquilibriumAttention
from boosted_attention.attention.gated import GatedAttention
from boosted_attention.attention.hopfield import HopfieldAttention
from boosted_attention.attention.layer import AttentionLayer, BoostedAttention, StandardAttention
from boosted_attention.attention.masks import padding_mask
from boosted_attention.attention.multihead import BoostedMultiheadAttention
from boosted_attention.attention.switch import disable_rounds
from boosted_attention.attention.trace import LayerTrace, RoundTrace, capture
from boosted_attention.attention.twicing import TwicingAttention
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.language_model import LanguageModel

if TYPE_CHECKING:
    from boosted_attention.pretrained.conversion import boost, unboost

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """boost and unboost need transformers, which is loaded when they are asked for."""
    if name in ("boost", "unboost"):
        from boosted_attention.pretrained import conversion

        return getattr(conversion, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AttentionLayer",
    "BoostedAttention",
    "BoostedMultiheadAttention",
    "DifferentialAttention",
    "EquilibriumAttention",
    "GatedAttention",
    "HopfieldAttention",
    "KVCache",
    "LanguageModel",
    "LanguageModelConfig",
    "LayerTrace",
    "RoundTrace",
    "StandardAttention",
    "TwicingAttention",
    "attention_layer",
    "boost",
    "capture",
    "disable_rounds",
    "list_attention",
    "padding_mask",
    "unboost",
]
