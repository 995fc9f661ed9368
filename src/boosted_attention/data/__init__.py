"""Corpora, tokenizers, token files, and batches as a pure function of (seed, step).

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from boosted_attention.lazy import lazy_names

if TYPE_CHECKING:
    from boosted_attention.data.tokenizer import Tokenizer as Tokenizer
    from boosted_attention.data.tokens import DataConfig as DataConfig
    from boosted_attention.data.tokens import TokenData as TokenData
    from boosted_attention.data.tokens import prepare as prepare

__getattr__, __dir__, __all__ = lazy_names(__name__)
