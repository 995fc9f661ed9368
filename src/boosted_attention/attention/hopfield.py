"""Iterated retrieval: the output becomes the next query, keys and values stay.

    z_0 = x,    z_{n+1} = softmax(beta W_Q z_n K^T) V

One step is attention. Stopping is per row: a row whose step is small enough is frozen, so no row's result depends on
another's (a stop for the whole batch would leak the future into the past).

Reference: Ramsauer et al., "Hopfield Networks is All You Need", ICLR 2021; the paper's Equation 2.
"""

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from boosted_attention.attention.config import CommonOptions, LayerConfig, common_options
from boosted_attention.attention.kernels import inside_transform
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learners import LEARNERS, RoundCall, SoftmaxLearner, merge_heads
from boosted_attention.validation import is_count, require


def iterate(step: Callable[[Tensor], Tensor], z: Tensor, n_steps: int, tol: float) -> tuple[Tensor, Tensor, Tensor]:
    """Apply ``step`` at most ``n_steps`` times; freeze each row (last dimension) once ||dz|| <= tol ||z||.

    Returns the state, the steps each row took, and whether it came to rest (both of z's shape without the last).
    """
    active = torch.ones_like(z[..., 0], dtype=torch.bool)  # (B, T)
    steps = torch.zeros_like(active, dtype=torch.int64)
    # Transforms, the compiler, the meta device and fake tensors cannot branch on data.
    may_stop_early = not (inside_transform() or torch.compiler.is_compiling() or z.is_meta or hasattr(z, "fake_mode"))
    for _ in range(n_steps):
        new = step(z)
        with torch.no_grad():
            moving = ~((new - z).norm(dim=-1) <= tol * new.norm(dim=-1))  # a NaN never rests
        z = torch.where(active[..., None], new, z)
        steps = steps + active
        active = active & moving
        if may_stop_early and not active.any():
            break
    return z, steps, ~active


def require_square_state(config: LayerConfig) -> None:
    require(
        config.d_inner == config.d_model,
        f"head_dim={config.head_dim} with learner={config.learner!r} needs n_heads * head_dim == d_model: "
        "the output becomes the query",
    )


def iterated_flops(learner: SoftmaxLearner, n_keys: int, n_steps: int) -> int:
    """``n_steps`` maps, and a query projection for each after the first."""
    one_map = SoftmaxLearner.map_flops(learner, n_keys)
    return n_steps * one_map + (n_steps - 1) * 2 * learner.query_weight().numel()


class HopfieldLearner(SoftmaxLearner):
    def __init__(self, config: LayerConfig, index: int, *, n_steps: int = 3, tol: float = 0.0):
        require(is_count(n_steps), f"n_steps={n_steps!r} must be an integer of at least 1")
        require(tol >= 0, f"tol={tol} must not be negative")
        require_square_state(config)
        super().__init__(config, index)
        self.n_steps, self.tol = n_steps, tol

    def map_flops(self, n_keys: int) -> int:
        return iterated_flops(self, n_keys, self.n_steps)

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        angles = self.rotary(call.positions, z.dtype)

        def step(state: Tensor) -> Tensor:
            return merge_heads(call.attention(self.project_query(state, angles), k, v, self.scale))

        first = merge_heads(call.attention(q, k, v, self.scale))
        state, steps, converged = iterate(step, first, self.n_steps - 1, self.tol)
        call.note(steps=steps + 1, converged=converged)
        return state


LEARNERS["hopfield"] = HopfieldLearner


class HopfieldAttention(AttentionLayer):
    """Iterated attention with fixed keys and values, gradients through the iterations.

    The trace's ``extra`` holds ``steps`` and ``converged`` per row; its ``weights`` are those of the last step taken.

    Args:
        n_steps: at most this many steps; 1 is standard attention.
        tol: a row rests once its step is at most ``tol`` times its norm; 0 runs all steps.
    """

    def __init__(
        self, d_model: int, n_heads: int, *, n_steps: int = 3, tol: float = 0.0, **common: Unpack[CommonOptions]
    ):
        options = {"n_steps": n_steps, "tol": tol}
        config = LayerConfig(
            d_model=d_model, n_heads=n_heads, learner="hopfield", learner_options=options, **common_options(common)
        )
        super().__init__(config)
