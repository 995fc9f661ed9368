"""Cross-entropy through the vocabulary projection in chunks, without ever holding all logits.

    L = sum_t w_t L_t,    L_t = -log softmax(W h_t)[y_t],    dL_t/dlogits_t = softmax(W h_t) - onehot(y_t)

The weights w_t are one unless they are given, and then have gradients too, dL/dw_t = L_t.
The forward pass works chunk by chunk and computes the gradients while a chunk's logits exist, so that the backward pass
only scales them. The arithmetic is that of the plain loss: three matrix products, none repeated.

Reference: Wijmans et al., "Cut Your Losses in Large-Vocabulary Language Models", 2024; Hsu et al., "Liger Kernel",
2024.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from boosted_attention.compat import has_values, leave_uncompiled

CHUNK_ELEMENTS = 2**22  # logits at a time: 16 MB in float32; fewer would read and write d_weight too often
IGNORED = -100  # the target of positions that predict nothing
UNSURE = 1e-30  # probability below which its logarithm has lost digits in float32


def chunk_rows(vocab_size: int) -> int:
    """Return how many tokens a chunk holds."""
    return max(1, CHUNK_ELEMENTS // vocab_size)


def bytes_of_chunk(tokens: int, vocab_size: int, precision: torch.dtype) -> int:
    """Return the bytes of a chunk's logits, which become probabilities; in half precision of three forms of them."""
    each = (
        precision.itemsize if precision == precise(precision) else 2 * precision.itemsize + precise(precision).itemsize
    )
    return each * vocab_size * min(tokens, chunk_rows(vocab_size))


def logits_in_chunks(hidden: Tensor, weight: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield the rows of hidden (N, D) that belong to a chunk, and their logits (n, V), which the next chunk overwrites.

    Under autocast every chunk is a tensor of its own.
    """
    rows, device = chunk_rows(weight.shape[0]), hidden.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    buffer = None if autocast else hidden.new_empty(min(rows, hidden.shape[0]), weight.shape[0])
    for start in range(0, hidden.shape[0], rows):
        h = hidden[start : start + rows]
        logits = functional.linear(h, weight) if buffer is None else torch.mm(h, weight.T, out=buffer[: h.shape[0]])
        yield slice(start, start + h.shape[0]), logits


def softmax_losses(logits: Tensor, targets: Tensor, h: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses (n,) of targets that exist, and all probabilities (n, V), which may take the logits' place.

    Args:
        logits: logits W h (n, V).
        targets: token of each row (n,).
        h: what the logits are computed from (n, D); a loss that its probability does not tell exactly is computed anew.
        weight: vocabulary projection (V, D).
    """
    index, dtype = targets[:, None], precise(logits.dtype)
    p = torch.softmax(logits, -1, out=logits) if logits.dtype == dtype else logits.softmax(-1, dtype=dtype)
    at_target = at(p, index)[:, 0]
    losses = -at_target.log()
    if has_values(p) and bool((at_target < UNSURE).any()):
        unsure = (at_target < UNSURE).nonzero()[:, 0]
        again = functional.linear(h[unsure], weight).to(dtype)
        losses[unsure] = again.logsumexp(-1) - again.gather(1, index[unsure])[:, 0]
    return losses, p


class SummedLoss(torch.autograd.Function):
    """Sum of the token losses of hidden (N, D) against targets (N,), with projection weight (V, D) and weights (N,)."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, of_tokens: Tensor | None) -> Tensor:
        needs_hidden, needs_weight, _, needs_tokens = ctx.needs_input_grad
        total = torch.zeros((), dtype=precise(hidden.dtype), device=hidden.device)
        d_hidden = torch.empty_like(hidden) if needs_hidden else None
        d_weight = torch.zeros_like(weight, dtype=precise(weight.dtype)) if needs_weight else None
        d_tokens = torch.empty_like(of_tokens) if of_tokens is not None and needs_tokens else None
        for rows, logits in logits_in_chunks(hidden, weight):
            h, y = hidden[rows], targets[rows]
            counts = y != IGNORED  # (n,)
            share = (counts if of_tokens is None else counts * of_tokens[rows])[:, None]  # (n, 1)
            index = torch.where(counts, y, 0)
            losses, p = softmax_losses(logits, index, h, weight)
            losses = torch.where(counts, losses, 0.0)
            total += (losses if of_tokens is None else losses * of_tokens[rows]).sum()
            if d_tokens is not None:
                d_tokens[rows] = losses.to(d_tokens.dtype)
            p.scatter_add_(1, index[:, None], p.new_full((len(y), 1), -1.0))  # dL/dlogits, of the targets that count
            d_logits = p.to(logits.dtype)
            if d_hidden is not None:
                d_hidden[rows] = (d_logits @ weight.to(logits.dtype)) * share
            if d_weight is not None:
                add_product(d_weight, d_logits.T, (h * share).to(logits.dtype))
        ctx.save_for_backward(d_hidden, None if d_weight is None else d_weight.to(weight.dtype), d_tokens)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, Tensor | None]:
        (scale,) = upstream
        d_hidden, d_weight, d_tokens = (None if g is None else g * scale.to(g.dtype) for g in ctx.saved_tensors)
        return d_hidden, d_weight, None, d_tokens


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a b to a total, in one pass over it where all are of one dtype."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


def at(p: Tensor, index: Tensor) -> Tensor:
    """Return the entries of p (n, V) at the targets, (n, 1), or raise ValueError for a target that does not exist."""
    try:
        return p.gather(1, index)
    except RuntimeError:
        wrong = index[(index < 0) | (index >= p.shape[1])]
        if len(wrong):
            raise ValueError(f"targets contain {int(wrong[0])}; the vocabulary has {p.shape[1]} tokens") from None
        raise


@leave_uncompiled  # a loop of matrix products leaves a compiler nothing to fuse
def chunked_loss(
    hidden: Tensor, weight: Tensor, targets: Tensor, reduction: str, of_tokens: Tensor | None = None
) -> Tensor:
    """Return the loss over all targets but IGNORED ones.

    Args:
        hidden: what the projection is applied to (B, T, D).
        weight: vocabulary projection (V, D).
        targets: tokens to predict (B, T).
        reduction: "mean" or "sum".
        of_tokens: weight of each token's loss (B, T); None for one each.
    """
    flat = None if of_tokens is None else of_tokens.flatten()
    total = SummedLoss.apply(hidden.flatten(0, 1), weight, targets.flatten(), flat)
    assert isinstance(total, Tensor)
    return total if reduction == "sum" else total / (targets != IGNORED).sum()


@torch.no_grad()
def token_losses(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each target (B, T), zero where it is IGNORED; without gradients."""
    flat, y = hidden.flatten(0, 1), targets.flatten()
    found = torch.empty(len(y), dtype=precise(hidden.dtype), device=hidden.device)
    for rows, logits in logits_in_chunks(flat, weight):
        counts = y[rows] != IGNORED
        losses, _ = softmax_losses(logits, torch.where(counts, y[rows], 0), flat[rows], weight)
        found[rows] = torch.where(counts, losses, 0.0)
    return found.view(targets.shape)


def precise(dtype: torch.dtype) -> torch.dtype:
    """Return float32, or the dtype if it is wider."""
    return torch.promote_types(dtype, torch.float32)
