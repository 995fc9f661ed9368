"""Muon: momentum whose matrices are orthogonalised, so that every direction of a matrix moves equally far.

    B_t = mu B_{t-1} + (1 - mu) G_t;   D_t = mu B_t + (1 - mu) G_t;   W_t = (1 - lr lambda) W_{t-1} - lr s O(D_t)

O(D) is near U V^T of D = U S V^T, found by five steps of a Newton-Schulz iteration from X = D / ||D||:

    X <- a X + b (X X^T) X + c (X X^T)^2 X,    (a, b, c) = (3.4445, -4.7750, 2.0315)

The factor s = 0.2 sqrt(max(rows, columns)) gives an update the root mean square that AdamW's usually has.

References: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024,
https://kellerjordan.github.io/posts/muon/ (the optimizer), and Liu et al., "Muon is Scalable for LLM Training", 2025,
https://arxiv.org/abs/2502.16982 (the factor).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from boosted_attention.train.groups import Division, undivided
from boosted_attention.train.parallel import Parallel

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the polynomial: its slope at zero is as steep as can be
ITERATIONS = 5
SMALLEST_NORM = 1e-7  # below it a direction counts as zero
MATCHED_RMS = 0.2  # root mean square of an entry of AdamW's update, divided by the learning rate
BATCH_ELEMENTS = 2**26  # that are put together at once: a device that holds a share of a model has no room for all


class Muon(torch.optim.Optimizer):
    """Muon over matrices, with Nesterov momentum and decoupled weight decay; its state is one buffer per parameter.

    This class is used in place of ``torch.optim.Muon`` (torch 2.9 or newer, with
    ``adjust_lr_fn="match_rms_adamw"``), which it equals up to rounding on plain matrices, so that the package needs no
    newer torch. It adds three things: the matrices in a packed parameter are orthogonalised apart, each with the factor
    of its own shape; matrices of one shape go through one batched iteration; and a parameter that is divided over
    processes is put together first, since the iteration needs all of a matrix. The iteration rounds to bfloat16 as
    torch's does, for float64 parameters not at all, so that runs in float64 can be compared exactly.

    Args:
        params: parameters with two dimensions, or torch's groups of them.
        lr: learning rate; each group may have its own.
        weight_decay: decoupled weight decay; each group may have its own.
        momentum: decay rate mu of the buffer.
        divisions: how parameters that hold several matrices divide into views of them.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float | Tensor,
        *,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        divisions: Mapping[nn.Parameter, Division] | None = None,
    ):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self.divisions = dict(divisions or {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient.

        Args:
            closure: computes the loss and its gradients anew before the update.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        moving = [(p, group) for group in self.param_groups for p in group["params"] if p.grad is not None]
        for batch in batches(moving, BATCH_ELEMENTS):
            updates = [Parallel.whole(self._direction(p, group["momentum"])) for p, group in batch]
            orthogonalise_parts([view for (p, _), t in zip(batch, updates, strict=True) for view in self._parts(p, t)])
            for (p, group), update in zip(batch, updates, strict=True):
                lr = float(group["lr"])
                p.mul_(1 - lr * group["weight_decay"])
                p.add_(Parallel.like(update, p), alpha=-lr)
        return loss

    def _direction(self, p: nn.Parameter, momentum: float) -> Tensor:
        """Add the gradient to the buffer, and return where Nesterov's rule looks."""
        assert p.grad is not None
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(p)
        state["momentum_buffer"].lerp_(p.grad, 1 - momentum)
        return p.grad.lerp(state["momentum_buffer"], momentum)

    def _parts(self, p: nn.Parameter, t: Tensor) -> Sequence[Tensor]:
        """Return views of the matrices in a whole tensor of a parameter's shape."""
        return self.divisions.get(p, undivided)(t)


def batches(
    moving: Sequence[tuple[nn.Parameter, dict[str, Any]]], most: int
) -> Iterator[list[tuple[nn.Parameter, dict[str, Any]]]]:
    """Divide parameters into batches of at most so many elements, or of one parameter that has more."""
    batch, filled = [], 0
    for p, group in moving:
        if batch and filled + p.numel() > most:
            yield batch
            batch, filled = [], 0
        batch.append((p, group))
        filled += p.numel()
    if batch:
        yield batch


def orthogonalise_parts(views: Iterable[Tensor]) -> None:
    """Replace matrices by their updates s O(D), in place; those of one shape go through one iteration.

    Args:
        views: matrices, each (..., columns) with all other dimensions as its rows.
    """
    by_shape: dict[tuple[int, int], list[Tensor]] = {}
    for view in views:
        by_shape.setdefault((view.shape[:-1].numel(), view.shape[-1]), []).append(view)
    for shape, some in by_shape.items():
        stack = orthogonalised(torch.stack([view.flatten(0, -2) for view in some]))  # (n, rows, columns)
        factor = MATCHED_RMS * math.sqrt(max(shape))
        for view, made in zip(some, stack, strict=True):
            view.copy_(made.view(view.shape)).mul_(factor)


def orthogonalised(stack: Tensor) -> Tensor:
    """Return the orthogonal factors of matrices (n, rows, columns), roughly.

    Singular values of at least 0.003 of the matrix's norm become values between 0.68 and 1.14; smaller ones grow by
    a factor of up to 485.

    Args:
        stack: the matrices, in any precision; all but float64 are rounded to bfloat16 at every step.
    """
    a, b, c = COEFFICIENTS
    x = rounded(stack)
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT  # the smaller of the two products X X^T
    x = rounded(x / x.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST_NORM))  # singular values of at most 1
    for _ in range(ITERATIONS):
        gram = rounded(x @ x.mT)  # (n, smaller, smaller)
        polynomial = rounded(torch.baddbmm(gram, gram, gram, beta=b, alpha=c))
        x = rounded(torch.baddbmm(x, polynomial, x, beta=a))
    return x.mT if tall else x


def rounded(t: Tensor) -> Tensor:
    """Return numbers rounded to bfloat16, on processors as float32: few have instructions for products in bfloat16.

    Such products add up in float32 wherever they are made, so that the same is computed, save for the order of sums.
    Without the instructions a step of Newton-Schulz takes thirteen times as long in bfloat16, and all of them a third
    of a training step of a small model.
    """
    if t.dtype == torch.float64:
        return t
    return t.bfloat16().float() if t.device.type == "cpu" else t.bfloat16()
