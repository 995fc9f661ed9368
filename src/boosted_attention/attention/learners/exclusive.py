"""Exclusive round: takes out of every head's output what lies along the value of its own position.

    F_h <- F_h - alpha_h (F_h . vhat_h) vhat_h,    vhat = v / ||v||,  v of the same position, round 0's

The correction is c_h = -(F_h . vhat_h) vhat_h, and alpha is its gate: tanh(theta_h) from 0 (``tanh-headwise``), or 1
(``none``), as published. There is neither an attention map nor a weight. Along a value of zero nothing is taken out.

Reference: "Exclusive Self Attention", 2026, https://arxiv.org/abs/2603.09078
"""

import torch
from torch import Tensor

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learner import Learner, register_learner
from boosted_attention.attention.round_call import KeyValue, Projected, RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner


@register_learner("exclusive")
class ExclusiveLearner(Learner):
    """A round without attention: c_h = -(F_h . vhat_h) vhat_h."""

    needs_square_map = True
    needs_heads = True
    needs_estimate = True
    only_corrects = True

    def reset_parameters(self) -> None:
        """Do nothing: there are no weights."""

    def can_read(self, first: Learner) -> bool:
        """Return whether round 0 has values as wide as a head."""
        return isinstance(first, SoftmaxLearner) and first.value_layout == (self.n_kv_heads, self.d_head)

    def forward(self, z: Tensor, shared: Projected | None, source: KeyValue, call: RoundCall) -> tuple[Tensor, None]:
        """Return minus the part of every head of F = z along its value; arguments as in ``Learner.forward``."""
        assert shared is not None
        work = torch.promote_types(z.dtype, torch.float32)  # squares would overflow in half precision
        own = shared.v[:, :, shared.v.shape[2] - z.shape[1] :]  # values at the query positions
        v = own.transpose(1, 2)[:, :, :, None].to(work)  # (B, T, H_kv, 1, dh)
        f = z.unflatten(-1, (self.n_kv_heads, -1, self.d_head)).to(work)  # (B, T, H_kv, H / H_kv, dh)
        square = v.square().sum(dim=-1, keepdim=True)
        share = (f * v).sum(dim=-1, keepdim=True) / torch.where(square == 0, 1.0, square)
        return (-share * v).flatten(2).to(z.dtype), None


class ExclusiveAttention(
    AttentionLayer,
    n_rounds=2,
    learner=("softmax", "exclusive"),
    gate="tanh-headwise",
    kv_source="shared",
    residual="estimate",
):
    """Attention without what lies along a position's own value, F_h - alpha_h (F_h . vhat_h) vhat_h.

    x (B, T, d_model) -> (B, T, d_model). alpha is the gate: tanh(theta_h) from 0, or 1 with ``gate="none"``. Refuses
    ``memory`` and output space.
    Reference: "Exclusive Self Attention", 2026, https://arxiv.org/abs/2603.09078
    """


register_layer("exclusive", ExclusiveAttention)
register_layer("exclusive-fixed", ExclusiveAttention, gate="none")
register_layer(
    "local-exclusive",
    ExclusiveAttention,
    n_rounds=3,
    learner=("local-keys", "local", "exclusive"),
    gate=("none", "tanh-headwise"),
    residual=("error", "estimate"),
)
