"""Parallax: softmax attention plus its first-order change when the query moves by a learned step.

    p = softmax(scale q k^T),    s_j = rho . k_j,    rho = W_R z
    y = sum_j p_j (1 + sum_i p_i s_i - s_j) v_j

The factors 1 + sum_i p_i s_i - s_j average to 1 under p, but may be negative, so that y can leave the hull of the
values. Keys are those that attention reads: normalised with qk_norm, and turned with rotary embedding, as rho is then
too, so that s depends on distances alone. W_R starts at zero: the layer starts as softmax attention.

No map that torch's fused kernel computes gives sum_j p_j s_j v_j, whose factor s depends on query and key, short of
d_h x d_h products of keys and values; the paper has kernels of its own. Here the weights are held.

Reference: Zuo et al., "Parallax: Parameterized Local Linear Attention for Language Modeling", 2026,
https://arxiv.org/abs/2605.29157
"""

from torch import Tensor

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.heads import merge_heads, split_heads
from boosted_attention.attention.kernels import repeat_heads, weighted_sum
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learner import register_learner
from boosted_attention.attention.options import LayerOptions
from boosted_attention.attention.precision import full_precision
from boosted_attention.attention.rotary import rotate
from boosted_attention.attention.round_call import RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner
from boosted_attention.attention.zero_linear import ZeroLinear


@register_learner("parallax")
class ParallaxLearner(SoftmaxLearner):
    """Softmax attention with weights corrected along a learned direction among the keys."""

    needs_maps = True

    def __init__(self, options: LayerOptions, index: int):
        super().__init__(options, index)
        self.rho = ZeroLinear(options.d_model, options.d_inner, **options.factory)

    def reset_parameters(self) -> None:
        """Draw all weights anew, in the order of construction; the direction starts again at zero."""
        super().reset_parameters()
        self.rho.reset_parameters()

    def map_flops(self, n_keys: int) -> int:
        """Count two sets of scores, q k^T and rho k^T, and the weights times values once."""
        return super().map_flops(n_keys) + self.scores_flops(n_keys)

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        p = call.weights(q, k, self.scale)  # (B, H, T, S)
        rho = split_heads(self.rho(z), self.d_head)  # (B, H, T, dh)
        rho = rho if call.angles is None else rotate(rho, call.angles)
        call.note(rho=rho)
        with full_precision(z.device):
            s = rho.to(p.dtype) @ repeat_heads(k, self.n_heads).to(p.dtype).transpose(-2, -1)  # (B, H, T, S)
        mean = (p * s).sum(dim=-1, keepdim=True)  # (B, H, T, 1)
        return merge_heads(weighted_sum(p * (1 + mean - s), v))


class ParallaxAttention(AttentionLayer, learner="parallax"):
    """Parallax, sum_j p_j (1 + sum_i p_i s_i - s_j) v_j with the softmax weights p and s_j = (W_R x) . k_j.

    x (B, T, d_model) -> (B, T, d_model). It starts as standard attention. The trace's ``extra`` holds ``rho``,
    (B, H, T, dh); its ``weights`` are p.
    Reference: Zuo et al., "Parallax: Parameterized Local Linear Attention for Language Modeling", 2026,
    https://arxiv.org/abs/2605.29157
    """


register_layer("parallax", ParallaxAttention)
