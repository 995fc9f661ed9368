"""Attention with dropout in tiles of queries: neither the weights nor their mask are ever whole in memory.

    y = (softmax(scale q k^T + mask) * keep / (1 - p)) v

A tile has the weights of TILE_QUERIES queries in hand, in a processor's cache, and goes no further than the last key
that a causal mask shows them. The backward pass computes weights and mask again. The explicit kernel draws the same
mask (``keep_mask``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from boosted_attention.attention.dropout import MaskSource
from boosted_attention.attention.precision import full_precision
from boosted_attention.compat import softmax_gradient

TILE_QUERIES = 64  # a constant of the format: it decides which random number drops which weight
CACHE_ELEMENTS = 2**18  # weights at a time: 1 MB in float32, which a processor's cache holds


class Tile(NamedTuple):
    """Rows of the batch, queries and keys that are computed at a time."""

    rows: slice
    queries: slice
    n_keys: int  # keys from the first on
    place: int  # among the tiles of a row

    @property
    def n_rows(self) -> int:
        return self.rows.stop - self.rows.start

    @property
    def n_queries(self) -> int:
        return self.queries.stop - self.queries.start


def tiles(shape: tuple[int, ...], is_causal: bool) -> Iterator[Tile]:
    """Divide attention (B, H, T, S) into tiles; a causal one is square and its tiles end with their last query."""
    batch, n_heads, n_queries, n_keys = shape
    length = min(TILE_QUERIES, n_queries)
    together = max(1, CACHE_ELEMENTS // (n_heads * length * n_keys))
    for row in range(0, batch, together):
        rows = slice(row, min(row + together, batch))
        for place, start in enumerate(range(0, n_queries, TILE_QUERIES)):
            queries = slice(start, min(start + TILE_QUERIES, n_queries))
            yield Tile(rows, queries, queries.stop if is_causal else n_keys, place)


def drawn(masks: MaskSource, tile: Tile, n_heads: int, device: torch.device) -> Tensor:
    """Return which weights of a tile are kept, (rows, H, queries, keys), 1 or 0."""
    shape = (tile.n_rows, n_heads, tile.n_queries, tile.n_keys)
    count = n_heads * tile.n_queries * tile.n_keys
    return masks.draw(tile.rows.start, tile.n_rows, tile.place, count).reshape(shape).to(device)


@torch.library.custom_op("boosted_attention::keep_mask", mutates_args=())
def keep_mask(like: Tensor, is_causal: bool, dropout: float, key: Tensor) -> Tensor:
    """Return the whole mask that the tiles of weights like these draw, (B, H, T, S), 1 or 0; 0 where no tile reaches.

    Args:
        like: weights (B, H, T, S).
        is_causal: as in ``dropout_attention``.
        dropout: probability of a weight to be dropped.
        key: key of the mask.
    """
    masks, keep = MaskSource(key, dropout), torch.zeros_like(like, dtype=torch.int16)
    for tile in tiles(tuple(like.shape), is_causal):
        keep[tile.rows, :, tile.queries, : tile.n_keys] = drawn(masks, tile, like.shape[1], like.device)
    return keep


@keep_mask.register_fake
def _(like, is_causal, dropout, key):  # as above
    return torch.empty_like(like, dtype=torch.int16)


def later_keys(is_causal: bool, n_queries: int, device: torch.device) -> Tensor | None:
    """Return which of a tile's last keys come after each of its queries, (queries, keys); None where all are seen."""
    n = min(TILE_QUERIES, n_queries)
    return torch.ones(n, n, dtype=torch.bool, device=device).triu(1) if is_causal else None


def weights_of(
    tile: Tile, q: Tensor, k: Tensor, bias: Tensor | None, dead: Tensor | None, later: Tensor | None
) -> Tensor:
    """Return the weights of a tile, (rows * H, queries, keys), from its scaled queries and its keys."""
    scores = torch.bmm(q, k.transpose(1, 2))
    whole = scores.view(tile.n_rows, -1, *scores.shape[1:])  # (rows, H, queries, keys)
    if later is not None:
        n = tile.n_queries
        whole[..., -n:].masked_fill_(later[:n, :n], -torch.inf)
    if bias is not None:
        bias = part_of(bias, tile)
        if bias.dtype == torch.bool:
            whole.masked_fill_(~bias, -torch.inf)
        else:
            whole.add_(bias)
    torch.softmax(scores, dim=-1, out=scores)
    if dead is not None:
        whole.masked_fill_(part_of(dead, tile), 0.0)
    return scores


def part_of(mask: Tensor, tile: Tile) -> Tensor:
    """Return a tile's part of a mask (B or 1, H or 1, T or 1, S or 1)."""
    mask = mask if mask.shape[0] == 1 else mask[tile.rows]
    return mask if mask.shape[2] == 1 else mask[:, :, tile.queries]


def heads(t: Tensor, rows: slice, positions: slice, dtype: torch.dtype) -> Tensor:
    """Return some rows and positions of (B, H, S, d) with the heads of all rows side by side, (rows * H, S, d)."""
    if rows.stop - rows.start == 1:
        return t[rows.start, :, positions].to(dtype)  # a view where the dtype is right
    return t[rows, :, positions].flatten(0, 1).to(dtype)


@torch.library.custom_op("boosted_attention::dropout_attention", mutates_args=())
def dropout_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    dead: Tensor | None,
    is_causal: bool,
    scale: float,
    dropout: float,
    key: Tensor,
) -> Tensor:
    """Return attention with dropped weights, (B, H, T, dv).

    Args:
        q: queries (B, H, T, dh).
        k: keys (B, H, S, dh).
        v: values (B, H, S, dv).
        bias: bool or additive mask, open somewhere in every row; dimensions that broadcast to (B, H, T, S).
        dead: rows to zero; dimensions that broadcast to (B, H, T, 1).
        is_causal: whether query t sees the keys up to t; there are as many keys as queries then.
        scale: factor on the scores.
        dropout: probability of a weight to be dropped.
        key: key of the mask.
    """
    y, work = output_of(q, v), torch.promote_types(q.dtype, torch.float32)
    masks, n_heads, later = MaskSource(key, dropout), q.shape[1], later_keys(is_causal, q.shape[2], q.device)
    with full_precision(q.device):
        for tile in tiles((*q.shape[:3], k.shape[2]), is_causal):
            rows, seen = tile.rows, slice(0, tile.n_keys)
            some_q = heads(q, rows, tile.queries, work) * scale
            p = weights_of(tile, some_q, heads(k, rows, seen, work), bias, dead, later)
            p.mul_(drawn(masks, tile, n_heads, q.device).reshape(p.shape))
            out = torch.bmm(p, heads(v, rows, seen, work)).mul_(1 / (1 - dropout))
            y[rows, :, tile.queries] = out.view(tile.n_rows, n_heads, *out.shape[1:]).to(y.dtype)
    return y


def output_of(q: Tensor, v: Tensor) -> Tensor:
    """Return an empty output (B, H, T, dv) whose heads lie side by side, as their concatenation wants them."""
    batch, n_heads, n_queries, _ = q.shape
    return q.new_empty(batch, n_queries, n_heads, v.shape[-1]).transpose(1, 2)


@torch.library.custom_op("boosted_attention::dropout_attention_gradient", mutates_args=())
def dropout_attention_gradient(
    upstream: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    dead: Tensor | None,
    is_causal: bool,
    scale: float,
    dropout: float,
    key: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v; ``upstream`` (B, H, T, dv) is that of the output.

    With weights p, mask m = keep / (1 - p_drop) and dw = (upstream v^T) m:

        dv = (p m)^T upstream;   ds = p (dw - sum(p dw));   dq = scale ds k;   dk = scale ds^T q
    """
    work, n_heads = torch.promote_types(q.dtype, torch.float32), q.shape[1]
    masks, later = MaskSource(key, dropout), later_keys(is_causal, q.shape[2], q.device)
    dq = output_of(q, q)
    dk, dv = torch.zeros_like(k, dtype=work), torch.zeros_like(v, dtype=work)
    with full_precision(q.device):
        for tile in tiles((*q.shape[:3], k.shape[2]), is_causal):
            rows, seen = tile.rows, slice(0, tile.n_keys)
            some_q = heads(q, rows, tile.queries, work) * scale
            some_k, some_v = heads(k, rows, seen, work), heads(v, rows, seen, work)
            p = weights_of(tile, some_q, some_k, bias, dead, later)
            keep = drawn(masks, tile, n_heads, q.device).reshape(p.shape)
            grown = heads(upstream, rows, tile.queries, work) * (1 / (1 - dropout))
            dw = torch.bmm(grown, some_v.transpose(1, 2)).mul_(keep)
            ds = softmax_gradient(dw, p)
            into = (tile.n_rows, n_heads)
            dq[rows, :, tile.queries] = torch.bmm(ds, some_k).mul_(scale).unflatten(0, into).to(dq.dtype)
            add_product(dk, rows, seen, ds.transpose(1, 2), some_q)
            add_product(dv, rows, seen, p.mul_(keep).transpose(1, 2), grown)
    return dq, dk.to(k.dtype), dv.to(v.dtype)


def add_product(total: Tensor, rows: slice, positions: slice, a: Tensor, b: Tensor) -> None:
    """Add a b, (rows * H, S, d), to some rows and positions of (B, H, S, d)."""
    if rows.stop - rows.start == 1:
        total[rows.start, :, positions].baddbmm_(a, b)
    else:
        total[rows, :, positions] += torch.bmm(a, b).unflatten(0, (-1, total.shape[1]))


@dropout_attention.register_fake
def _(q, k, v, bias, dead, is_causal, scale, dropout, key):  # as above
    return output_of(q, v)


@dropout_attention_gradient.register_fake
def _(upstream, q, k, v, bias, dead, is_causal, scale, dropout, key):  # as above
    return output_of(q, q), torch.empty_like(k), torch.empty_like(v)


def _remember(ctx, inputs, output) -> None:  # as torch.library says
    q, k, v, bias, dead, ctx.is_causal, ctx.scale, ctx.dropout, key = inputs
    ctx.save_for_backward(q, k, v, bias, dead, key)


def _gradient(ctx, upstream):  # as torch.library says
    *tensors, key = ctx.saved_tensors
    found = dropout_attention_gradient(upstream, *tensors, ctx.is_causal, ctx.scale, ctx.dropout, key)
    return *found, None, None, None, None, None, None


dropout_attention.register_autograd(_gradient, setup_context=_remember)
