"""What a language model is called with: shapes that fit together, and the positions of its tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from boosted_attention.attention.masks import document_positions, document_starts
from boosted_attention.compat import has_values
from boosted_attention.validation import InputError, require


def require_input(
    ids: Tensor, attention_mask: Tensor | None, documents: Tensor | None, past: int, d_model: int
) -> None:
    """Raise InputError unless the shapes of a call fit together.

    Args:
        ids: token ids (B, T), or vectors (B, T, D) in the place of their embeddings.
        attention_mask: 1 at real tokens (B, S), past ones included.
        documents: number of each token's document (B, T).
        past: number of past tokens.
        d_model: D.
    """
    vectors = ids.ndim == 3 and ids.is_floating_point() and ids.shape[2] == d_model
    if not (vectors or (ids.ndim == 2 and not ids.is_floating_point())) or ids.shape[1] < 1:
        raise InputError(f"ids has shape {tuple(ids.shape)} and dtype {ids.dtype}; expected integers (batch, length)")
    batch, length = ids.shape[:2]
    if attention_mask is not None and attention_mask.shape != (batch, past + length):
        raise InputError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; expected {(batch, past + length)}: one entry "
            "per token so far, 1 for real tokens"
        )
    if documents is not None and documents.shape != (batch, length):
        raise InputError(f"documents has shape {tuple(documents.shape)}; expected {(batch, length)}")


def token_positions(
    ids: Tensor,
    attention_mask: Tensor | None,
    documents: Tensor | None,
    positions: Tensor | None,
    past: int,
    max_len: int,
) -> Tensor:
    """Return the positions of the tokens, (T,), (1, T) or (B, T); raise InputError where one is not below ``max_len``.

    Args:
        ids: tokens (B, T) or (B, T, D).
        attention_mask: 1 at real tokens (B, S): positions count from the first of them.
        documents: number of each token's document (B, T): positions count anew in each.
        positions: the positions themselves, (T,), (1, T) or (B, T); None counts them.
        past: number of past tokens.
        max_len: number of positions that the model has.
    """
    batch, length = ids.shape[:2]
    if positions is None and documents is None:
        if past + length > max_len:
            raise InputError(f"ids reach position {past + length}, the model takes max_len={max_len}")
        if attention_mask is None:
            return torch.arange(past, past + length, device=ids.device)
        return counted(attention_mask, None)[:, past:]
    if positions is None:
        assert documents is not None
        positions = document_positions(documents) if attention_mask is None else counted(attention_mask, documents)
        if length <= max_len:
            return positions
    integral = not positions.is_floating_point() and positions.dtype != torch.bool
    if not integral or positions.shape not in ((length,), (1, length), (batch, length)):
        raise InputError(
            f"positions has shape {tuple(positions.shape)} and dtype {positions.dtype}; expected integers of shape "
            f"({length},) or ({batch}, {length})"
        )
    if has_values(positions):
        low, high = int(positions.min()), int(positions.max())
        require(low >= 0, f"positions contain {low}; they count from 0")
        require(high < max_len, f"ids reach position {high + 1}, the model takes max_len={max_len}")
    return positions


def counted(attention_mask: Tensor, documents: Tensor | None) -> Tensor:
    """Return the number of real tokens before each in its row, or in its document, (B, S)."""
    real = attention_mask.long()
    so_far = real.cumsum(dim=1)
    if documents is not None:
        so_far = so_far - (so_far - real).gather(1, document_starts(documents))
    return (so_far - 1).clamp_min(0)
