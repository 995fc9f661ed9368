"""Iterated retrieval: the output becomes the next query, keys and values stay.

    z_0 = x,    z_{n+1} = softmax(beta W_Q z_n K^T) V

One step is attention. Each row stops on its own: a row whose step is small enough is frozen, so that no row's result
depends on another's (a common stop for the whole batch would leak the future into the past).

Reference: Ramsauer et al., "Hopfield Networks is All You Need", ICLR 2021; the paper's Equation 2.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.heads import merge_heads
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learner import register_learner
from boosted_attention.attention.options import LayerOptions
from boosted_attention.attention.round_call import RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner
from boosted_attention.compat import has_values, inside_transform
from boosted_attention.validation import is_count, is_number, require


def iterate(step: Callable[[Tensor], Tensor], z: Tensor, n_steps: int, tol: float) -> tuple[Tensor, Tensor, Tensor]:
    """Apply ``step`` repeatedly; freeze each row (last dimension) once ||dz|| <= tol ||z||.

    Args:
        step: function (B, T, D) -> (B, T, D).
        z: state to start from (B, T, D).
        n_steps: largest number of steps.
        tol: relative size of a step at which a row rests.

    Returns:
        The state (B, T, D), the number of steps each row took (B, T), and whether it came to rest (B, T).
    """
    active = torch.ones_like(z[..., 0], dtype=torch.bool)  # (B, T)
    steps = torch.zeros_like(active, dtype=torch.int64)
    # Transforms, the compiler, the meta device and fake tensors cannot branch on data.
    may_stop_early = has_values(z) and not (inside_transform() or torch.compiler.is_compiling())
    for _ in range(n_steps):
        new = step(z)
        with torch.no_grad():
            # NaN compares false, so a NaN row keeps iterating.
            moving = ~((new - z).norm(dim=-1) <= tol * new.norm(dim=-1))
        z = torch.where(active[..., None], new, z)
        steps = steps + active
        active = active & moving
        if may_stop_early and not active.any():
            break
    return z, steps, ~active


def require_square_state(options: LayerOptions, index: int) -> None:
    """Raise InputError unless the round's output is as wide as its input."""
    require(
        options.d_inner == options.d_model,
        f"head_dim={options.head_dim} with learner={options.learners[index]!r} needs n_heads * head_dim == d_model: "
        "the output becomes the query",
    )


def require_tolerance(tol: object) -> None:
    """Raise InputError unless ``tol`` is a number that is not negative."""
    require(is_number(tol) and tol >= 0, f"tol={tol} must not be negative")


def iterated_flops(learner: SoftmaxLearner, n_keys: int, n_steps: int) -> int:
    """Count ``n_steps`` maps, and a query projection for each after the first."""
    one_map = SoftmaxLearner.map_flops(learner, n_keys)
    return n_steps * one_map + (n_steps - 1) * 2 * learner.query_weight().numel()


@register_learner("hopfield")
class HopfieldLearner(SoftmaxLearner):
    """Iterated retrieval, z_{n+1} = softmax(beta W_Q z_n K^T) V, with gradients through the iterations.

    Args:
        n_steps: Largest number of steps; 1 is standard attention.
        tol: Size of a step, relative to the state's norm, at which a row rests; 0 runs all steps.
    """

    def __init__(self, options: LayerOptions, index: int, *, n_steps: int = 3, tol: float = 0.0):
        require(is_count(n_steps), f"n_steps={n_steps!r} must be an integer of at least 1")
        require_tolerance(tol)
        require_square_state(options, index)
        super().__init__(options, index)
        self.n_steps, self.tol = n_steps, tol

    def map_flops(self, n_keys: int) -> int:
        """Count all steps that a row may take."""
        return iterated_flops(self, n_keys, self.n_steps)

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        def step(state: Tensor) -> Tensor:
            return merge_heads(call.attention(self.project_query(state, call.angles), k, v, self.scale))

        first = merge_heads(call.attention(q, k, v, self.scale))
        state, steps, converged = iterate(step, first, self.n_steps - 1, self.tol)
        call.note(steps=steps + 1, converged=converged)
        return state


class HopfieldAttention(AttentionLayer, learner="hopfield"):
    """Iterated attention with fixed keys and values: z_0 = x, z_{n+1} = softmax(beta W_Q z_n K^T) V.

    x (B, T, d_model) -> (B, T, d_model). The trace's ``extra`` holds ``steps`` and ``converged`` per row, (B, T); its
    ``weights`` are those of the last step taken.
    Reference: Ramsauer et al., "Hopfield Networks is All You Need", ICLR 2021, https://arxiv.org/abs/2008.02217
    """

    if TYPE_CHECKING:  # options of the learner's own are known at run time

        def __init__(self, d_model: int, n_heads: int, **options: Any): ...


register_layer("hopfield", HopfieldAttention)
