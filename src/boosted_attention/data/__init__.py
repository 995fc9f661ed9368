"""Corpora, tokenizers, token files, and batches as a pure function of (seed, step).

The names below are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boosted_attention.data.tokenizer import Tokenizer
    from boosted_attention.data.tokens import DataConfig, TokenData, prepare

__all__ = ["DataConfig", "TokenData", "Tokenizer", "prepare"]

HOMES = {"DataConfig": "tokens", "TokenData": "tokens", "Tokenizer": "tokenizer", "prepare": "tokens"}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
