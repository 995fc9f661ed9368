"""Strict twicing and the delta rule: each value is reduced by what attention to the positions before it predicts.

    strict twicing    u = v - beta * (A_< v)                            one step
    delta             u_t = v_t - beta_t sum_{s<t} A_<[t, s] u_s        all steps, the solution of (I + beta A_<) u = v
    both              y = A u,    beta_h = sigmoid(w_h . z - 2)

A_< is the strictly causal map: the softmax of row t over the positions s < t alone; the first position, and every row
that sees nothing before it, predicts zero. The triangular system is solved at once, for which the weights of A_< must
be in hand; strict twicing only applies its maps. With a cache, past positions need their u, one more tensor, and a new
position needs one row.

Both need an order, so that they are for causal calls, and the value of their own position, so that there is no
cross-attention form.

Reference: Zhong et al., "Understanding Transformer from the Perspective of Associative Memory", 2025 (DeltaFormer),
https://arxiv.org/abs/2505.19488
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.heads import merge_heads
from boosted_attention.attention.kernels import repeat_heads, weighted_sum
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learner import register_learner
from boosted_attention.attention.masks import strictly_before
from boosted_attention.attention.options import LayerOptions
from boosted_attention.attention.precision import full_precision
from boosted_attention.attention.round_call import RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner

BETA_START = -2.0  # sigmoid(-2) = 0.12: a small step at first


@register_learner("strict-twicing")
class StrictTwicingLearner(SoftmaxLearner):
    """Attention to values that were reduced by a part of what attention to earlier positions predicts."""

    needs_square_map = True
    needs_order = True
    n_maps = 2

    def __init__(self, options: LayerOptions, index: int):
        super().__init__(options, index)
        self.beta = nn.Linear(options.d_model, options.n_heads, bias=options.bias, **options.factory)

    def reset_parameters(self) -> None:
        """Draw all weights anew, in the order of construction."""
        super().reset_parameters()
        self.beta.reset_parameters()

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        beta = (self.beta(z) + BETA_START).sigmoid().transpose(1, 2)[..., None]  # (B, H, T, 1)
        call.note(beta=beta)
        own = repeat_heads(v[:, :, v.shape[2] - q.shape[2] :], self.n_heads)  # (B, H, T, dh): at the query positions
        u = call.remember("u", self.reduced(own, beta, q, k, v, call))  # (B, H, S, dh), one per query head
        return merge_heads(call.attention(q, k, u, self.scale))

    def reduced(self, own: Tensor, beta: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        """Return u at the query positions, (B, H, T, dh).

        Args:
            own: values at the query positions (B, H, T, dh).
            beta: size of the step (B, H, T, 1).
            q: queries (B, H, T, dh).
            k: keys (B, H_kv, S, dh), the last T of them at the query positions.
            v: values (B, H_kv, S, dh).
            call: kernel, mask and cache of this call.
        """
        if call.mask.is_causal:  # row t of the strict map is row t - 1 of the causal one of later queries, earlier keys
            later = replace(call, trace=None).attention(q[:, :, 1:], k[:, :, :-1], v[:, :, :-1], self.scale)
            predicted = functional.pad(later, (0, 0, 1, 0))  # (B, H, T, dh): the first position predicts zero
        else:
            predicted = strict(call, q, k).attention(q, k, v, self.scale)
        return own - beta * predicted


@register_learner("delta")
class DeltaLearner(StrictTwicingLearner):
    """Strict twicing solved exactly: what is subtracted is predicted from the reduced values themselves."""

    needs_maps = True

    def map_flops(self, n_keys: int) -> int:
        """Count two sets of scores, the weights times values once, and the triangular solve, which is half of that."""
        weighted = 2 * self.split_sizes[0] * n_keys
        return 2 * self.scores_flops(n_keys) + weighted + weighted // 2

    def reduced(self, own: Tensor, beta: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        """Return u at the query positions, (B, H, T, dh), by forward substitution; arguments as in strict twicing."""
        before = beta * strict(call, q, k).weights(q, k, self.scale)  # (B, H, T, S): beta A_<
        past, new = before.split([k.shape[2] - q.shape[2], q.shape[2]], dim=-1)
        reduced = call.recall("u")
        right = own if reduced is None else own - weighted_sum(past, reduced)  # (B, H, T, dh)
        with full_precision(own.device):  # torch.linalg has no half precision; the diagonal is taken to be 1
            u = torch.linalg.solve_triangular(new, right.to(new.dtype), upper=False, unitriangular=True)
        return u.to(own.dtype)


def strict(call: RoundCall, q: Tensor, k: Tensor) -> RoundCall:
    """Return the call with its mask strictly causal; its map is not the one that a trace shows."""
    return replace(call, mask=strictly_before(call.mask, q.shape[2], k.shape[2], q.device), trace=None)


class StrictTwicingAttention(AttentionLayer, learner="strict-twicing"):
    """Strict twicing, A (V - beta * (A_< V)): one attention predicts each value from those before it.

    x (B, T, d_model) -> (B, T, d_model). For causal calls; refuses ``memory``. ``learner="delta"`` predicts from the
    reduced values instead, which is the solution of a triangular system. The trace's ``extra`` holds ``beta``,
    (B, H, T, 1); its ``weights`` are A.
    Reference: Zhong et al., "Understanding Transformer from the Perspective of Associative Memory", 2025 (DeltaFormer),
    https://arxiv.org/abs/2505.19488
    """


register_layer("strict-twicing", StrictTwicingAttention)
register_layer("delta", StrictTwicingAttention, learner="delta")
