"""Masks: causal, padding, bool and additive, brought to one form once per call.

The convention is that of ``torch.nn.functional.scaled_dot_product_attention``: a bool mask is True where a query may
attend, an additive mask is added to the scores. Both are (T, S) or (B, H, T, S), where any of the four sizes may be 1;
a padding mask is (B, 1, 1, S). The output of a query that may attend to nothing is zero with a zero gradient.

Several documents may share a row: ``documents`` (B, T) numbers the document of each token, and every change of number
begins a new one. ``document_mask`` keeps them apart and ``document_positions`` counts anew in each.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from boosted_attention.validation import require

HIDDEN = 100.0
"""Distance below the largest number of a row from which an additive mask hides: attention gives such keys a weight of
e^-100 times theirs at most, as with the lowest finite number in the place of minus infinity."""


class Mask(NamedTuple):
    """The form of a mask that kernels take: ``tensor`` is open somewhere in every row, ``dead`` marks rows to zero."""

    tensor: Tensor | None = None  # bool or additive, four dimensions that broadcast to (B, H, T, S)
    dead: Tensor | None = None  # bool, four dimensions that broadcast to (B, H, T, 1)
    is_causal: bool = False  # square and causal, left to the kernel so that no (T, S) tensor exists


def causal_mask(n_queries: int, n_keys: int, device: torch.device | None = None) -> Tensor:
    """Return (T, S), True where query t may see key s; queries are the last ``n_queries`` of ``n_keys`` positions."""
    return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_queries)  # (T, S)


def sees_recent(mask: Mask, n_queries: int, n_keys: int, count: int) -> Tensor | None:
    """Return whether each query may see its own position and those before it, in any head; None for all there are.

    An additive mask hides what it puts ``HIDDEN`` below the largest number of the query's row.

    Args:
        mask: the mask of a call.
        n_queries: T, the last of ``n_keys`` positions.
        n_keys: S.
        count: number of positions asked for, the query's own first.

    Returns:
        bool, (B or 1, T, count); what it says of positions before the first means nothing.
    """
    if mask.tensor is None:
        return None
    t = torch.arange(n_queries, device=mask.tensor.device)[:, None]
    s = (t + n_keys - n_queries - torch.arange(count, device=mask.tensor.device)).clamp_min(0)  # (T, count)
    near = mask.tensor.expand(-1, -1, n_queries, n_keys)[:, :, t, s]  # (B, H, T, count)
    if near.dtype != torch.bool:
        near = near >= mask.tensor.amax(dim=-1, keepdim=True) - HIDDEN  # (B, H, T, count)
    return (near if mask.dead is None else near & ~mask.dead).any(dim=1)


def padding_mask(attention_mask: Tensor) -> Tensor:
    """Turn a tokenizer's mask into the bool mask the layers take, (B, S) -> (B, 1, 1, S).

    Args:
        attention_mask: 1 at real tokens, 0 at padding.
    """
    require(attention_mask.ndim == 2, f"attention_mask has shape {tuple(attention_mask.shape)}, expected (batch, keys)")
    return attention_mask.bool()[:, None, None, :]  # (B, 1, 1, S)


def document_mask(documents: Tensor) -> Tensor:
    """Return the bool mask under which tokens see their own document alone, (B, T) -> (B, 1, T, T).

    Args:
        documents: number of each token's document; where it changes, another document begins.
    """
    first = document_starts(documents)
    return first[:, None, :, None] == first[:, None, None, :]  # (B, 1, T, T)


def document_positions(documents: Tensor) -> Tensor:
    """Return the place of every token in its own document, from 0, (B, T) -> (B, T).

    Args:
        documents: number of each token's document; where it changes, another document begins.
    """
    return torch.arange(documents.shape[1], device=documents.device) - document_starts(documents)


def document_starts(documents: Tensor) -> Tensor:
    """Return the place in its row where the document of each token begins, (B, T) -> (B, T)."""
    integral = not documents.is_floating_point() and documents.dtype != torch.bool
    require(
        documents.ndim == 2 and integral,
        f"documents has shape {tuple(documents.shape)} and dtype {documents.dtype}; expected integers (batch, length)",
    )
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    places = torch.arange(documents.shape[1], device=documents.device)
    return torch.where(begins, places, 0).cummax(dim=1).values


def documents_from(positions: Tensor, real: Tensor | None = None) -> Tensor | None:
    """Return the number of each token's document, (B, T), as positions tell; None where every row is one document.

    A document begins wherever a position is not the one behind the last real token's: packed rows of transformers.

    Args:
        positions: integer positions (B, T).
        real: bool, whether each token is no padding (B, T); None for all.
    """
    places = torch.arange(positions.shape[1], device=positions.device).expand_as(positions)
    real = torch.ones_like(places, dtype=torch.bool) if real is None else real
    last = torch.where(real, places, -1).cummax(dim=1).values  # the last real token up to each place
    before = functional.pad(last[:, :-1], (1, 0), value=-1)  # the last one before it, -1 for none
    begins = real & (before >= 0) & (positions != positions.gather(1, before.clamp_min(0)) + 1)
    return begins.cumsum(dim=1) if bool(begins.any()) else None


def build_mask(
    mask: Tensor | None, is_causal: bool, batch: int, n_heads: int, n_queries: int, n_keys: int, device: torch.device
) -> Mask:
    """Validate what the user passed, join it with causality, and find the rows that see nothing."""
    if mask is None:
        if not is_causal or n_queries == 1:
            return Mask()
        if n_queries == n_keys:
            return Mask(is_causal=True)
        return Mask(tensor=causal_mask(n_queries, n_keys, device)[None, None])

    full = (batch, n_heads, n_queries, n_keys)
    if not (mask.dtype == torch.bool or mask.is_floating_point()):
        raise ValueError(
            f"mask has dtype {mask.dtype}; expected torch.bool (True = may attend) or a floating-point additive mask"
        )
    sizes = zip(mask.shape, full[-mask.ndim :], strict=False)
    if mask.ndim not in (2, 4) or any(size not in (1, want) for size, want in sizes):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; expected {full[-2:]} or {full} (any size may be 1), "
            "the keys counting what the cache holds"
        )
    mask = mask[None, None] if mask.ndim == 2 else mask  # (B, H, T, S)
    if is_causal and n_queries > 1:
        causal = causal_mask(n_queries, n_keys, device)
        mask = mask & causal if mask.dtype == torch.bool else mask.masked_fill(~causal, -torch.inf)
    return opened(mask)


def opened(mask: Tensor) -> Mask:
    """Open the rows of a mask (B, H, T, S) that see nothing, and mark them to be zeroed."""
    if mask.dtype == torch.bool:
        dead = ~mask.any(dim=-1, keepdim=True)
        return Mask(tensor=mask | dead, dead=dead)
    dead = (mask == -torch.inf).all(dim=-1, keepdim=True)
    return Mask(tensor=mask.masked_fill(dead, 0.0), dead=dead)


def strictly_before(mask: Mask, n_queries: int, n_keys: int, device: torch.device) -> Mask:
    """Return a causal mask without each query's own position; queries are the last ``n_queries`` of the keys."""
    hidden = ~causal_mask(n_queries, n_keys, device).tril(n_keys - n_queries - 1)[None, None]  # (1, 1, T, S)
    hidden = hidden if mask.dead is None else hidden | mask.dead  # rows that were opened are closed again
    if mask.tensor is None:
        return opened(~hidden)
    if mask.tensor.dtype == torch.bool:
        return opened(mask.tensor & ~hidden)
    return opened(mask.tensor.masked_fill(hidden, -torch.inf))
