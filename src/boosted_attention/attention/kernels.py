"""Attention kernels with one signature: fused, tiled (neither holds the weights) and explicit (which does).

    y = softmax(scale * q k^T + mask) v

A kernel returns the map v -> y, so that a learner can apply one map several times, and the weights if it has them. In
training each application draws its own dropout mask; a learner whose formula contains the weights themselves takes them
from the explicit kernel and drops some of them once, with ``dropped``.

fused      torch's scaled dot-product attention; dropout where the device's kernel has it
tiled      attention with dropout elsewhere, in tiles of queries
explicit   for formulas that contain the weights, traces, masks that are learned and function transforms (vmap, grad of
           grad), for which the others have no path; it drops the weights that ``tiled`` drops

In half precision all of them work in float32 and round once.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from boosted_attention.attention.dropout import has_own_dropout, new_key
from boosted_attention.attention.masks import Mask, causal_mask
from boosted_attention.attention.options import CHOICES
from boosted_attention.attention.precision import full_precision
from boosted_attention.attention.tiled import dropout_attention, keep_mask
from boosted_attention.compat import inside_transform
from boosted_attention.validation import require, require_choice

Map = Callable[[Tensor], Tensor]  # values (B, H_kv or H, S, dv) -> outputs (B, H, T, dv)
Kernel = Callable[[Tensor, Tensor, Mask, float, float], tuple[Map, Tensor | None]]


def repeat_heads(t: Tensor, n_heads: int) -> Tensor:
    """Give each of n_heads query heads its own copy of the head it shares; head h reads h // (n_heads / shared)."""
    return t if t.shape[1] in (1, n_heads) else t.repeat_interleave(n_heads // t.shape[1], dim=1)


def all_heads(t: Tensor, n_heads: int) -> Tensor:
    """Return ``repeat_heads`` with a head that all share given to each of them too."""
    return repeat_heads(t, n_heads).expand(-1, n_heads, -1, -1)


def fused(q: Tensor, k: Tensor, mask: Mask, scale: float, dropout: float) -> tuple[Map, None]:
    """Return a map that computes its scores anew each time it is applied."""
    n_heads, bias = q.shape[1], mask.tensor
    if bias is not None:
        bias = repeat_heads(bias, n_heads)
        if bias.dtype not in (torch.bool, q.dtype):
            bias = bias.to(torch.promote_types(q.dtype, torch.float32))  # half precision would round large biases

    def apply(v: Tensor) -> Tensor:
        keys = k if k.shape[1] == v.shape[1] else all_heads(k, v.shape[1])
        y = functional.scaled_dot_product_attention(
            q,
            keys,
            v,
            attn_mask=bias,
            dropout_p=dropout,
            is_causal=mask.is_causal,
            scale=scale,
            enable_gqa=v.shape[1] != n_heads,
        )  # (B, H, T, dh)
        return y if mask.dead is None else y.masked_fill(repeat_heads(mask.dead, n_heads), 0.0)

    return apply, None


def tiled(q: Tensor, k: Tensor, mask: Mask, scale: float, dropout: float) -> tuple[Map, None]:
    """Return a map that computes its scores tile by tile, each time it is applied, and drops some weights."""
    n_heads = q.shape[1]
    keys = all_heads(k, n_heads)
    bias, dead = (None if t is None else repeat_heads(t, n_heads) for t in (mask.tensor, mask.dead))

    def apply(v: Tensor) -> Tensor:
        values = all_heads(v, n_heads)
        return dropout_attention(q, keys, values, bias, dead, mask.is_causal, scale, dropout, new_key())

    return apply, None


def explicit(q: Tensor, k: Tensor, mask: Mask, scale: float, dropout: float) -> tuple[Map, Tensor]:
    """Return a map whose weights are computed once, and the weights before dropout."""
    n_heads, work = q.shape[1], torch.promote_types(q.dtype, torch.float32)
    bias = causal_mask(q.shape[2], k.shape[2], q.device)[None, None] if mask.is_causal else mask.tensor
    with full_precision(q.device):
        scores = (q.to(work) * scale) @ repeat_heads(k, n_heads).to(work).transpose(-2, -1)  # (B, H, T, S)
        if bias is not None:
            bias = repeat_heads(bias, n_heads)
            scores = scores.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else scores + bias.to(work)
        weights = scores.softmax(dim=-1)
        if mask.dead is not None:
            weights = weights.masked_fill(repeat_heads(mask.dead, n_heads), 0.0)

    def apply(v: Tensor) -> Tensor:
        return weighted_sum(dropped(weights, dropout, mask.is_causal), v)

    return apply, weights


def weighted_sum(weights: Tensor, v: Tensor) -> Tensor:
    """Return weights (B, H, T, S) times values (B, H_kv or H, S, dv), summed in the weights' dtype and rounded once."""
    with full_precision(v.device):
        y = weights @ repeat_heads(v, weights.shape[1]).to(weights.dtype)  # (B, H, T, dv)
    return y.to(v.dtype)


def dropped(weights: Tensor, dropout: float, is_causal: bool) -> Tensor:
    """Return the weights (B, H, T, S) with some dropped and the others divided by 1 - p."""
    if dropout == 0.0:
        return weights
    if has_own_dropout(weights.device) or inside_transform():
        return functional.dropout(weights, dropout)
    keep = keep_mask(weights.detach(), is_causal, dropout, new_key())
    return (weights * keep).mul_(1 / (1 - dropout))  # in place: no gradient needs the product


def choose_kernel(
    kernel: str, *, needs_maps: bool, tracing: bool, dropout: float, mask: Mask, device: torch.device
) -> Kernel:
    """Choose the kernel of a round.

    Args:
        kernel: "auto", "fused" or "explicit".
        needs_maps: whether the round's formula contains the weights.
        tracing: whether the call is traced.
        dropout: probability of dropout in this call.
        mask: mask of the call.
        device: device of its tensors.
    """
    require_choice("kernel", kernel, CHOICES["kernel"])
    learned = mask.tensor is not None and mask.tensor.requires_grad
    if kernel == "fused":
        for holds_weights, reason in (
            (needs_maps, "the learner's formula contains the attention weights"),
            (tracing, "a trace holds the attention weights"),
            (inside_transform(), "function transforms have no fused attention"),
            (learned, "a mask that is learned needs the attention weights for its gradient"),
        ):
            require(not holds_weights, f"kernel='fused' cannot be had: {reason}; use kernel='auto'")
    if kernel == "explicit" or needs_maps or tracing or inside_transform():
        return explicit
    if dropout == 0.0 or has_own_dropout(device):
        return fused
    return explicit if learned else tiled
