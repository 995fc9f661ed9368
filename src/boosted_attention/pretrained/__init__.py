"""Boost pretrained models of transformers; importing this registers boosted models with its Auto classes."""

from boosted_attention.validation import InputError

try:
    import transformers  # noqa: F401
except ImportError:
    raise InputError("boosted_attention.pretrained needs transformers (pip install 'boosted-attention[hf]')") from None

from boosted_attention.pretrained.auto import register
from boosted_attention.pretrained.conversion import boost, unboost
from boosted_attention.pretrained.correction import load_correction, save_correction
from boosted_attention.pretrained.native import from_transformers, to_transformers

__all__ = ["boost", "from_transformers", "load_correction", "register", "save_correction", "to_transformers", "unboost"]
