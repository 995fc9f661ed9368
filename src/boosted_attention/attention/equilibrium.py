"""Equilibrium attention: the fixed point of iterated retrieval, differentiated by the implicit function theorem.

    z* = f(z*),    f(z) = softmax(beta W_Q (z + x) K^T) V        (without query injection: W_Q z)
    dz* = (I - J)^{-1} df|_{z*},    J = df/dz

Keys and values are fixed, so J is one D x D block per row, known in closed form: per head, the covariance of values
and keys under the attention weights,

    J_h = beta (E[v k^T] - E[v] E[k]^T) W_Q,h

and the system is solved exactly: the gradient needs no second iteration and none of the forward steps is stored. The
price is a D x D block for each position, during the call.

Without injection the query enters only through the starting point, and the gradient to it through W_Q is zero by
construction. z_0 = 0 with injection and x without: the first step is plain attention in both.

Reference: Bai et al., "Deep Equilibrium Models", NeurIPS 2019; Ramsauer et al., 2021 (the Jacobian).
"""

from typing import Unpack

import torch
from torch import Tensor

from boosted_attention.attention.config import CommonOptions, LayerConfig, is_count
from boosted_attention.attention.hopfield import iterate, require_square_state
from boosted_attention.attention.kernels import explicit, repeat_heads
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learners import LEARNERS, Angles, RoundCall, SoftmaxLearner, merge_heads
from boosted_attention.attention.rotary import rotate
from boosted_attention.names import require


class EquilibriumLearner(SoftmaxLearner):
    allows_dropout = False

    def __init__(
        self, config: LayerConfig, index: int, *, inject: bool = True, max_steps: int = 100, tol: float = 1e-6
    ):
        require(is_count(max_steps), f"max_steps={max_steps!r} must be an integer of at least 1")
        require(tol >= 0, f"tol={tol} must not be negative")
        require_square_state(config)
        super().__init__(config, index)
        self.inject, self.max_steps, self.tol = inject, max_steps, tol

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        angles = self.rotary(call.positions, z.dtype)

        def query(state: Tensor) -> Tensor:
            return self.project_query(state + z if self.inject else state, angles)

        def step(state: Tensor) -> Tensor:
            return merge_heads(call.attention(query(state), k, v, self.scale))

        with torch.no_grad():
            first = merge_heads(call.attention(q, k, v, self.scale))
            rest, steps, converged = iterate(step, first, self.max_steps - 1, self.tol)
        call.note(steps=steps + 1, converged=converged)

        at_rest = query(rest)
        value = merge_heads(call.attention(at_rest, k, v, self.scale))  # f(z*), differentiable in x and the weights
        if not torch.is_grad_enabled():
            return value
        with torch.no_grad(), torch.autocast(z.device.type, enabled=False):  # a solve wants float32
            jacobian = self.jacobian(at_rest, k, v, angles, call)  # (B, T, D, D)
            system = torch.eye(jacobian.shape[-1], dtype=jacobian.dtype, device=jacobian.device) - jacobian
        change = (value - rest).to(system.dtype)
        implicit = torch.linalg.solve_ex(system, change[..., None]).result[..., 0].to(value.dtype)  # (I - J)^{-1} df
        return value.detach() + (implicit - implicit.detach())  # the value of f(z*) with the gradient of z*

    def jacobian(self, q: Tensor, k: Tensor, v: Tensor, angles: Angles | None, call: RoundCall) -> Tensor:
        """df/dz at the state whose query is q, (B, T, D, D), in float32 or better."""
        dtype = torch.promote_types(q.dtype, torch.float32)
        k, v = (repeat_heads(t, self.n_heads).expand(-1, self.n_heads, -1, -1).to(dtype) for t in (k, v))
        q = q.to(dtype)
        mean_v, p = explicit(q, k, v, call.mask, self.scale, 0.0)  # (B, H, T, dh), (B, H, T, S)
        outer = (v[..., :, None] * k[..., None, :]).flatten(-2)  # (B, H, S, dh*dh)
        second = (p @ outer).unflatten(-1, (self.d_head, self.d_head))  # (B, H, T, dh, dh): E[v k^T]
        covariance = second - mean_v[..., :, None] * (p @ k)[..., None, :]
        weight = self.query_weight().to(dtype).unflatten(0, (self.n_heads, self.d_head))  # (H, dh, D)
        if self.log_beta is not None:
            weight = weight * self.log_beta.exp()
        weight = weight.transpose(1, 2)[None, :, None]  # (1, H, 1, D, dh)
        if angles is not None:
            cos, sin = angles
            weight = rotate(weight, (cos[..., None, :], sin[..., None, :]))  # (B, H, T, D, dh)
        blocks = self.scale * covariance @ weight.transpose(-2, -1)  # (B, H, T, dh, D)
        return blocks.transpose(1, 2).flatten(2, 3)  # (B, T, D, D)


LEARNERS["equilibrium"] = EquilibriumLearner


class EquilibriumAttention(AttentionLayer):
    """The fixed point of attention iterated on its own output, with true implicit gradients.

    The trace's ``extra`` holds ``steps`` and ``converged`` per row. A row that reached ``max_steps`` first returns its
    last state, and its gradient is that of the linearisation there.

    Args:
        inject: add the layer's input to the query at every step, so that the fixed point depends on it.
        max_steps: at most this many steps.
        tol: a row rests once its step is at most ``tol`` times its norm.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        inject: bool = True,
        max_steps: int = 100,
        tol: float = 1e-6,
        **common: Unpack[CommonOptions],
    ):
        options = {"inject": inject, "max_steps": max_steps, "tol": tol}
        config = LayerConfig(d_model=d_model, n_heads=n_heads, learner="equilibrium", learner_options=options, **common)
        super().__init__(config)
