"""Attention kernels with one signature: fused (weights never in memory) and explicit (weights in memory).

    y = softmax(scale * q k^T + mask) v

A kernel returns the map v -> y, so that a learner can apply one map several times, and the weights if it has them.

The explicit kernel serves traces, dropout in training and function transforms (vmap, grad of grad), for which the
fused CPU kernel has no path. In half precision it works in float32 and rounds once, as the fused kernel does.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn import functional

from boosted_attention.attention.masks import Mask, causal_mask
from boosted_attention.attention.options import CHOICES
from boosted_attention.compat import inside_transform
from boosted_attention.validation import require_choice

Map = Callable[[Tensor], Tensor]  # values (B, H_kv or H, S, dv) -> outputs (B, H, T, dv)
Kernel = Callable[[Tensor, Tensor, Mask, float, float], tuple[Map, Tensor | None]]


def repeat_heads(t: Tensor, n_heads: int) -> Tensor:
    """Give each of n_heads query heads its own copy of the head it shares; head h reads h // (n_heads / shared)."""
    return t if t.shape[1] in (1, n_heads) else t.repeat_interleave(n_heads // t.shape[1], dim=1)


def fused(q: Tensor, k: Tensor, mask: Mask, scale: float, dropout: float) -> tuple[Map, None]:
    """Return a map that computes its scores anew each time it is applied."""
    assert dropout == 0.0, "dropout draws its mask on explicit weights"
    n_heads, bias = q.shape[1], mask.tensor
    if bias is not None:
        bias = repeat_heads(bias, n_heads)
        if bias.dtype not in (torch.bool, q.dtype):
            bias = bias.to(torch.promote_types(q.dtype, torch.float32))  # half precision would round large biases

    def apply(v: Tensor) -> Tensor:
        keys = k if k.shape[1] == v.shape[1] else repeat_heads(k, v.shape[1]).expand(-1, v.shape[1], -1, -1)
        y = functional.scaled_dot_product_attention(
            q, keys, v, attn_mask=bias, is_causal=mask.is_causal, scale=scale, enable_gqa=v.shape[1] != n_heads
        )  # (B, H, T, dh)
        return y if mask.dead is None else y.masked_fill(repeat_heads(mask.dead, n_heads), 0.0)

    return apply, None


def explicit(q: Tensor, k: Tensor, mask: Mask, scale: float, dropout: float) -> tuple[Map, Tensor]:
    """Return a map whose weights are computed once, and the weights; each application draws its own dropout mask."""
    dtype, n_heads = q.dtype, q.shape[1]
    work = torch.promote_types(dtype, torch.float32)
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
        with full_precision(v.device):
            y = functional.dropout(weights, dropout) @ repeat_heads(v, n_heads).to(work)  # (B, H, T, dh)
        return y.to(dtype)

    return apply, weights


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Switch autocast off, where the device has it."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def choose_kernel(kernel: str, *, tracing: bool, dropout: float) -> Kernel:
    """Choose the kernel of a call; traces, dropout and function transforms take the explicit one in any case.

    Args:
        kernel: "auto" or "explicit".
        tracing: whether the call is traced.
        dropout: probability of dropout in this call.
    """
    require_choice("kernel", kernel, CHOICES["kernel"])
    if kernel == "explicit" or tracing or dropout > 0.0 or inside_transform():
        return explicit
    return fused
