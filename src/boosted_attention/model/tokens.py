"""Validation of token ids."""

from torch import Tensor

from boosted_attention.validation import require


def require_tokens(ids: Tensor, vocab_size: int) -> None:
    """Raise InputError unless ids hold at least one token and only tokens of the vocabulary."""
    require(ids.numel() > 0, "ids is empty; give at least one token")
    low, high = int(ids.min()), int(ids.max())
    require(
        low >= 0 and high < vocab_size,
        f"token id {low if low < 0 else high} is outside the vocabulary of {vocab_size} tokens",
    )
