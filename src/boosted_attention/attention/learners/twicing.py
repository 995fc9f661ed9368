"""Twicing attention: smooth, then smooth what the smoothing lost, with the same map.

    y = A V + A (V - A V) = (2A - A^2) V

With a cache, past positions need their u_j = v_j - (A V)_j, one more tensor. A is square by construction, so there is
no cross-attention form. In training each pass draws its own dropout mask: one shared mask would bias the diagonal terms
of A^2.

Reference: Abdullaev and Nguyen, "Transformer Meets Twicing", ICLR 2025, https://arxiv.org/abs/2503.00687;
Tukey, "Exploratory Data Analysis", 1977.
"""

from torch import Tensor

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.heads import merge_heads, own_values
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learner import register_learner
from boosted_attention.attention.round_call import RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner


@register_learner("twicing")
class TwicingLearner(SoftmaxLearner):
    """One attention map applied twice, (2A - A^2) V."""

    needs_square_map = True
    fused_score_passes = 2

    def map_flops(self, n_keys: int) -> int:
        """Count one set of scores, and the weights times values twice."""
        return self.scores_flops(n_keys) + 2 * (2 * self.split_sizes[0] * n_keys)

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        smooth = call.map(q, k, self.scale)
        y = smooth(v)  # (B, H, T, dh): A V
        own = own_values(v, q.shape[2], self.n_heads)
        u = call.remember("u", own - y)  # (B, H, S, dh): V - A V, one per query head
        return merge_heads(y + smooth(u))


class TwicingAttention(AttentionLayer, learner="twicing"):
    """Twicing attention, (2A - A^2) V and an output projection: no parameters beyond standard attention's.

    x (B, T, d_model) -> (B, T, d_model). Refuses ``memory``.
    Reference: Abdullaev and Nguyen, "Transformer Meets Twicing", ICLR 2025, https://arxiv.org/abs/2503.00687
    """


register_layer("twicing", TwicingAttention)
