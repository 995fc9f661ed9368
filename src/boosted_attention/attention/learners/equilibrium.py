"""Equilibrium attention: the fixed point of iterated retrieval, differentiated by the implicit function theorem.

    z* = f(z*),    f(z) = softmax(beta W_Q (z + x) K^T) V        (without query injection: W_Q z)
    dz* = (I - J)^{-1} df|_{z*},    J = df/dz

Keys and values are fixed, so J is one D x D block per row, known in closed form: per head, the covariance of values
and keys under the attention weights,

    J_h = beta (E[v k^T] - E[v] E[k]^T) W_Q,h        with qk_norm: dn(W_Q,h z) W_Q,h, the norm's derivative at the state

The system is solved exactly: the gradient needs no second iteration, and no forward step is stored. The price is a
D x D block for each position during the call; with fewer keys than dimensions (H S < D) its low-rank form of size H S
is solved instead.

Without injection the query enters only through the starting point, so its gradient through W_Q is zero. The iteration
starts at z_0 = 0 with injection and at x without: the first step is plain attention in both cases.

Reference: Bai et al., "Deep Equilibrium Models", NeurIPS 2019; Ramsauer et al., 2021 (the Jacobian).
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.heads import merge_heads, split_heads
from boosted_attention.attention.kernels import explicit, repeat_heads
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learner import register_learner
from boosted_attention.attention.learners.hopfield import (
    iterate,
    iterated_flops,
    require_square_state,
    require_tolerance,
)
from boosted_attention.attention.options import LayerOptions
from boosted_attention.attention.precision import full_precision
from boosted_attention.attention.rotary import Angles, rotate
from boosted_attention.attention.round_call import RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner
from boosted_attention.validation import is_count, require


@register_learner("equilibrium")
class EquilibriumLearner(SoftmaxLearner):
    """The fixed point of iterated retrieval, with the gradient of the implicit function theorem.

    Args:
        inject: Whether the round's input is added to the query at every step, so that the fixed point depends on it.
        max_steps: Largest number of steps.
        tol: Size of a step, relative to the state's norm, at which a row rests.
    """

    allows_dropout = False
    needs_maps_in_backward = True

    def __init__(
        self, options: LayerOptions, index: int, *, inject: bool = True, max_steps: int = 100, tol: float = 1e-6
    ):
        require(is_count(max_steps), f"max_steps={max_steps!r} must be an integer of at least 1")
        require_tolerance(tol)
        require_square_state(options, index)
        super().__init__(options, index)
        self.inject, self.max_steps, self.tol = inject, max_steps, tol

    def map_flops(self, n_keys: int) -> int:
        """Count all steps that a row may take, and one map more, at the fixed point, which carries the gradient."""
        return iterated_flops(self, n_keys, self.max_steps + 1)

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        def asking(state: Tensor) -> Tensor:
            return state + z if self.inject else state  # (B, T, D): what is projected to the query

        def step(state: Tensor) -> Tensor:
            return merge_heads(call.attention(self.project_query(asking(state), call.angles), k, v, self.scale))

        with torch.no_grad():
            first = merge_heads(call.attention(q, k, v, self.scale))
            tol = max(self.tol, 2 * torch.finfo(first.dtype).eps)  # smaller steps are rounding
            rest, steps, converged = iterate(step, first, self.max_steps - 1, tol)
        rest = rest.detach()  # from forward-mode tangents too
        call.note(steps=steps + 1, converged=converged)

        at_rest = self.project_query(asking(rest), call.angles)
        value = merge_heads(call.attention(at_rest, k, v, self.scale))  # f(z*), differentiable in x and the weights
        if not torch.is_grad_enabled():
            return value
        with full_precision(z.device):  # torch.linalg has no half precision
            dtype = torch.promote_types(value.dtype, torch.float32)
            query_map = self.query_map(asking(rest), call.angles, dtype)
            implicit = self.solve(value - rest, at_rest, k, v, query_map, call).to(value.dtype)
        return value.detach() + (implicit - implicit.detach())  # the value of f(z*) with the gradient of z*

    def solve(self, change: Tensor, q: Tensor, k: Tensor, v: Tensor, query_map: Tensor, call: RoundCall) -> Tensor:
        """Return (I - J)^{-1} change, (B, T, D) in float32 or better, at the state whose query is q.

        Args:
            change: what is solved for (B, T, D).
            q: query at the state (B, H, T, dh).
            k: keys (B, H_kv, S, dh).
            v: values (B, H_kv, S, dh).
            query_map: dq/dz at the state, as ``query_map`` gives it.
            call: mask of this call.
        """
        dtype = query_map.dtype
        change = change.to(dtype)
        with torch.no_grad():
            k, v = (repeat_heads(t, self.n_heads).expand(-1, self.n_heads, -1, -1).to(dtype) for t in (k, v))
            _, p = explicit(q.to(dtype), k, call.mask, self.scale, 0.0)  # (B, H, T, S)
            query_map = self.scale * query_map
        if k.shape[1] * k.shape[2] >= change.shape[-1]:
            return linear_solve(full_jacobian(p, k, v, query_map), change[..., None])[..., 0]
        return low_rank_solve(p, k, v, query_map, change)

    @torch.no_grad()
    def query_map(self, z: Tensor, angles: Angles | None, dtype: torch.dtype) -> Tensor:
        """Return dq/dz at the query's input z (B, T, D): (B or 1, H, T or 1, dh, D).

        Without norm and rotary embedding it is the query projection, the same at every position.
        """
        weight, bias = (None if t is None else t.to(dtype) for t in self.rows("q"))
        assert weight is not None
        q_map = weight.unflatten(0, (self.n_heads, self.d_head)).transpose(1, 2)[None, :, None]  # (1, H, 1, D, dh)
        if self.q_norm is not None:
            q = split_heads(functional.linear(z.to(dtype), weight, bias), self.d_head)  # (B, H, T, dh)
            q_map = self.q_norm.derivative(q[..., None, :], q_map)  # (B, H, T, D, dh)
        if self.log_beta is not None:
            q_map = q_map * self.log_beta.exp()
        if angles is not None:
            q_map = rotate(q_map, angles.unsqueeze(-2))  # (B, H, T, D, dh)
        return q_map.transpose(-2, -1)


def full_jacobian(p: Tensor, k: Tensor, v: Tensor, query_map: Tensor) -> Tensor:
    """Return (E[v k^T] - E[v] E[k]^T) dq/dz for each head, (B, T, D, D)."""
    outer = (v[..., :, None] * k[..., None, :]).flatten(-2)  # (B, H, S, dh*dh)
    second = (p @ outer).unflatten(-1, (v.shape[-1], k.shape[-1]))  # (B, H, T, dh, dh)
    covariance = second - (p @ v)[..., :, None] * (p @ k)[..., None, :]
    return (covariance @ query_map).transpose(1, 2).flatten(2, 3)


def low_rank_solve(p: Tensor, k: Tensor, v: Tensor, query_map: Tensor, change: Tensor) -> Tensor:
    """Solve (I - J) y = change where J = L R has rank H*S: R is how p moves with z, L how the output moves with p.

    (I - L R)^{-1} = I + L (I - R L)^{-1} R, so that the system solved is (H*S) x (H*S).
    """
    n_heads, n_keys = k.shape[1:3]
    scores = k[:, :, None] @ query_map  # (B, H, T or 1, S, D): ds/dz
    gram = torch.einsum("bhtsxf,bxzf->bhtsxz", scores.unflatten(-1, (n_heads, -1)), v).flatten(-2)  # ds/dp'
    right_left = softmax_derivative(p, gram).transpose(1, 2).flatten(2, 3)  # (B, T, H*S, H*S)
    if query_map.shape[2] == 1:  # the same at every position: one product for all
        dq = change[:, None] @ query_map[:, :, 0].transpose(-2, -1)  # (B, H, T, dh)
    else:
        dq = (query_map @ change[:, None, :, :, None])[..., 0]
    along = (dq @ k.transpose(-2, -1))[..., None]  # (B, H, T, S, 1): how the scores move with the change
    right = softmax_derivative(p, along).transpose(1, 2).flatten(2, 3)  # (B, T, H*S, 1)
    w = linear_solve(right_left, right)[..., 0].unflatten(-1, (n_heads, n_keys)).transpose(1, 2)  # (B, H, T, S)
    return change + merge_heads(w @ v)


def softmax_derivative(p: Tensor, ds: Tensor) -> Tensor:
    """Return dp = p (ds - sum p ds) for changes of the scores ds (B, H, T or 1, S, n)."""
    mean = (p @ ds[:, :, 0])[..., None, :] if ds.shape[2] == 1 else p[..., None, :] @ ds  # (B, H, T, 1, n)
    return p[..., None] * (ds - mean)


def linear_solve(jacobian: Tensor, change: Tensor) -> Tensor:
    """Return (I - J)^{-1} change."""
    eye = torch.eye(jacobian.shape[-1], dtype=jacobian.dtype, device=jacobian.device)
    return torch.linalg.solve_ex(eye - jacobian, change).result


class EquilibriumAttention(AttentionLayer, learner="equilibrium"):
    """The fixed point of attention iterated on its own output, z* = softmax(beta W_Q (z* + x) K^T) V.

    x (B, T, d_model) -> (B, T, d_model). The gradient is the implicit one, (I - J)^{-1}, solved exactly. The trace's
    ``extra`` holds ``steps`` and ``converged`` per row, (B, T). A row that reached ``max_steps`` first returns its last
    state, and its gradient is that of the linearisation there. First derivatives only: the Jacobian in the solve is a
    constant of the graph, so second derivatives would miss a part.
    Reference: Bai et al., "Deep Equilibrium Models", NeurIPS 2019, https://arxiv.org/abs/1909.01377
    """

    if TYPE_CHECKING:  # options of the learner's own are known at run time

        def __init__(self, d_model: int, n_heads: int, **options: Any): ...


register_layer("equilibrium", EquilibriumAttention)
