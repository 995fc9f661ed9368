"""Cross-entropy through the vocabulary projection in chunks, without ever holding all logits.

    L = sum_t -log softmax(W h_t)[y_t],    dL/dlogits_t = softmax(W h_t) - onehot(y_t)

The forward pass works chunk by chunk and computes the gradients while a chunk's logits exist, so that the backward pass
only scales them. The arithmetic is that of the plain loss: three matrix products, none repeated.

Reference: Wijmans et al., "Cut Your Losses in Large-Vocabulary Language Models", 2024; Hsu et al., "Liger Kernel",
2024.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from boosted_attention.compat import leave_uncompiled

CHUNK_ELEMENTS = 2**20  # logits at a time: 4 MB in float32, which a cache can hold
IGNORED = -100  # the target of positions that predict nothing


def chunk_rows(vocab_size: int) -> int:
    """Return how many tokens a chunk holds."""
    return max(1, CHUNK_ELEMENTS // vocab_size)


def bytes_of_chunk(tokens: int, vocab_size: int, precision: torch.dtype) -> int:
    """Return the bytes of a chunk's logits and probabilities; in half precision, of both rounded as well."""
    sizes = {precision.itemsize, precise(precision).itemsize}
    return 2 * sum(sizes) * vocab_size * min(tokens, chunk_rows(vocab_size))


class SummedLoss(torch.autograd.Function):
    """Sum of the token losses of hidden (N, D) against targets (N,), with projection weight (V, D)."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        total = torch.zeros((), dtype=precise(hidden.dtype), device=hidden.device)
        d_hidden = torch.empty_like(hidden) if needs_hidden else None
        d_weight = torch.zeros_like(weight, dtype=precise(weight.dtype)) if needs_weight else None
        rows = chunk_rows(weight.shape[0])
        for start in range(0, hidden.shape[0], rows):
            h, y = hidden[start : start + rows], targets[start : start + rows]
            logits = functional.linear(h, weight)  # (n, V), in half precision under autocast
            counts = (y != IGNORED)[:, None]  # (n, 1)
            index = torch.where(counts[:, 0], y, 0)[:, None]
            precisely = logits.to(total.dtype)
            at_target, top = gather(precisely, index), precisely.amax(dim=-1, keepdim=True)
            p = precisely.softmax(dim=-1)
            # log p of the target by way of the largest p, which cannot underflow
            total += ((top - at_target - p.amax(dim=-1, keepdim=True).log()) * counts).sum()
            if d_hidden is None and d_weight is None:
                continue
            p.scatter_add_(1, index, torch.full_like(at_target, -1.0))  # now dL/dlogits, of the targets that count
            d_logits = p.to(logits.dtype)
            if d_hidden is not None:
                d_hidden[start : start + rows] = (d_logits @ weight.to(logits.dtype)) * counts
            if d_weight is not None:
                d_weight += d_logits.T @ (h * counts).to(logits.dtype)
        ctx.save_for_backward(d_hidden, None if d_weight is None else d_weight.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (scale,) = upstream
        d_hidden, d_weight = (None if g is None else g * scale.to(g.dtype) for g in ctx.saved_tensors)
        return d_hidden, d_weight, None


def gather(logits: Tensor, index: Tensor) -> Tensor:
    """Return the logits of the targets, (n, 1)."""
    try:
        return logits.gather(1, index)
    except RuntimeError:
        wrong = index[(index < 0) | (index >= logits.shape[1])]
        if len(wrong):
            raise ValueError(f"targets contain {int(wrong[0])}; the vocabulary has {logits.shape[1]} tokens") from None
        raise


@leave_uncompiled  # a loop of matrix products leaves a compiler nothing to fuse
def chunked_loss(hidden: Tensor, weight: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """Return the loss over all targets but IGNORED ones.

    Args:
        hidden: what the projection is applied to (B, T, D).
        weight: vocabulary projection (V, D).
        targets: tokens to predict (B, T).
        reduction: "mean" or "sum".
    """
    total = SummedLoss.apply(hidden.flatten(0, 1), weight, targets.flatten())
    assert isinstance(total, Tensor)
    return total if reduction == "sum" else total / (targets != IGNORED).sum()


@torch.no_grad()
def token_losses(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each target (B, T), zero where it is IGNORED; without gradients."""
    rows, flat = chunk_rows(weight.shape[0]), hidden.flatten(0, 1)
    parts = []
    for h, y in zip(flat.split(rows), targets.flatten().split(rows), strict=True):
        logits = functional.linear(h, weight).to(precise(hidden.dtype))
        parts.append(functional.cross_entropy(logits, y, ignore_index=IGNORED, reduction="none"))
    return torch.cat(parts).view(targets.shape)


def precise(dtype: torch.dtype) -> torch.dtype:
    """Return float32, or the dtype if it is wider."""
    return torch.promote_types(dtype, torch.float32)
