"""Value-basis boosting: the residual is taken where it means something, among the values of each head.

    u = v - F;    c = softmax(q_1 k^T / sqrt(d_h)) u,    q_1 = W_Q1 x;    F <- F + tanh(theta_h) c

Keys and values are round 0's; u is what its average lost of the values, and the correction asks for it with a query of
its own, which in a model starts as a copy of round 0's. Asked with round 0's query itself (``value-basis-tied``), F + c
is twicing, (2A - A^2) V, and with the gate a control: does the second question help, or the second pass? With a cache,
past positions need their u, one more tensor.

Reference: Abdullaev and Nguyen, "Transformer Meets Twicing", ICLR 2025, https://arxiv.org/abs/2503.00687 (the tied form
without a gate); "Gradient Boosting within a Single Attention Layer", https://arxiv.org/abs/2604.03190 (x - F).
"""

from torch import Tensor

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.heads import merge_heads, own_values, split_heads
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learner import register_learner
from boosted_attention.attention.round_call import Projected, RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner


@register_learner("value-basis")
class ValueBasisLearner(SoftmaxLearner):
    """A second question to round 0's keys, about what its estimate lost of the values: softmax(q_1 k^T) (v - F)."""

    needs_square_map = True
    needs_heads = True
    needs_estimate = True
    only_corrects = True
    starts_as_first = ("q",)

    def asked(self, z: Tensor, shared: Projected, call: RoundCall) -> Tensor:
        """Project the query from x, not from F = z."""
        return self.project_query(call.x, call.angles)

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        own = own_values(v, q.shape[2], self.n_heads)
        u = call.remember("u", own - split_heads(z, self.d_head).to(v.dtype))  # (B, H, S, dh): V - F, per query head
        return merge_heads(call.attention(q, k, u, self.scale))


@register_learner("value-basis-tied")
class TiedValueBasisLearner(ValueBasisLearner):
    """The same with round 0's own question, W_Q1 = W_Q0: gated twicing."""

    projects_query = False
    starts_as_first = ()

    def asked(self, z: Tensor, shared: Projected, call: RoundCall) -> Tensor:
        """Ask what round 0 asked."""
        return shared.q


class ValueBasisAttention(
    AttentionLayer,
    n_rounds=2,
    learner=("softmax", "value-basis"),
    gate="tanh-headwise",
    kv_source="shared",
    residual="estimate",
):
    """Boosting among the values: F + tanh(theta_h) softmax(q_1 k^T / sqrt(d_h)) (v - F), theta from 0.

    x (B, T, d_model) -> (B, T, d_model). Keys and values are round 0's. Refuses ``memory`` and output space.
    Reference: Abdullaev and Nguyen, "Transformer Meets Twicing", ICLR 2025, https://arxiv.org/abs/2503.00687 (the form
    with round 0's query and no gate).
    """


register_layer("value-basis", ValueBasisAttention)
register_layer("value-basis-tied", ValueBasisAttention, learner=("softmax", "value-basis-tied"))
