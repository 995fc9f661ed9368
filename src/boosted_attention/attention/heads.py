"""Heads of attention: taken apart, put together, and those of values at the positions of the queries."""

from __future__ import annotations

from torch import Tensor

from boosted_attention.attention.kernels import repeat_heads


def split_heads(t: Tensor, d_head: int) -> Tensor:
    """Split into heads, (B, S, H*dh) -> (B, H, S, dh)."""
    batch, length, width = t.shape
    return t.view(batch, length, width // d_head, d_head).transpose(1, 2)


def own_values(v: Tensor, n_queries: int, n_heads: int) -> Tensor:
    """Return the values at the query positions, for each query head, (B, H_kv, S, dh) -> (B, H or 1, T, dh)."""
    return repeat_heads(v[:, :, v.shape[2] - n_queries :], n_heads)


def merge_heads(t: Tensor) -> Tensor:
    """Concatenate heads, (B, H, T, dh) -> (B, T, H*dh)."""
    return t.transpose(1, 2).flatten(2)
