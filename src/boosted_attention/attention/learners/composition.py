"""Composed heads: each head adds a mixture of all heads' maps to its own, weighed by the input at the query.

    w1 = RMSNorm_H(1 + U1 z),    w2 = U2 z        one number per head and query
    y_h = A_h V_h + w2_h M V_h,    M = sum_h' w1_h' A_h'

U1 and U2 start at zero, where w1 is 1 for every head and w2 is 0: the layer starts as softmax attention. The norm is
over the heads and has no weights. This is the query-wise branch of rank one of dynamically composable attention, behind
the softmax. M is a map of its own, so that the weights of all heads must be in hand.

Reference: Xiao et al., "Improving Transformers with Dynamically Composable Multi-Head Attention", ICML 2024,
https://arxiv.org/abs/2405.08553
"""

from torch import Tensor
from torch.nn import functional

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.heads import merge_heads, split_heads
from boosted_attention.attention.kernels import repeat_heads, weighted_sum
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learner import register_learner
from boosted_attention.attention.options import LayerOptions
from boosted_attention.attention.round_call import RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner
from boosted_attention.attention.zero_linear import ZeroLinear

EPS = 1e-6


@register_learner("composition")
class CompositionLearner(SoftmaxLearner):
    """Softmax attention whose heads read a mixture of all maps beside their own."""

    needs_maps = True

    def __init__(self, options: LayerOptions, index: int):
        super().__init__(options, index)
        self.mix_from = ZeroLinear(options.d_model, options.n_heads, **options.factory)  # U1
        self.mix_into = ZeroLinear(options.d_model, options.n_heads, **options.factory)  # U2

    def reset_parameters(self) -> None:
        """Draw all weights anew, in the order of construction; the mixture starts again at zero."""
        super().reset_parameters()
        self.mix_from.reset_parameters()
        self.mix_into.reset_parameters()

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        a = call.weights(q, k, self.scale)  # (B, H, T, S)
        taken = functional.rms_norm(1 + self.mix_from(z).to(a.dtype), (self.n_heads,), eps=EPS)  # (B, T, H): w1
        taken, given = (t.transpose(1, 2)[..., None] for t in (taken, self.mix_into(z).to(a.dtype)))  # (B, H, T, 1)
        call.note(mixed_from=taken, mixed_into=given)
        mixture = (taken * a).sum(dim=1, keepdim=True)  # (B, 1, T, S): M
        mixed = weighted_sum(mixture, merge_heads(v)[:, None])[:, 0]  # (B, T, H_kv*dh): one product for all heads
        mixed = repeat_heads(split_heads(mixed, self.d_head), self.n_heads)  # (B, H, T, dh)
        return merge_heads((weighted_sum(a, v) + given * mixed).to(v.dtype))

    def map_flops(self, n_keys: int) -> int:
        """Count the mixture of the maps times values beside their own."""
        return super().map_flops(n_keys) + 2 * self.split_sizes[2] * n_keys


class CompositionAttention(AttentionLayer, learner="composition"):
    """Attention with composed heads, (A_h + w2_h sum_h' w1_h' A_h') V_h with w1 and w2 from the input.

    x (B, T, d_model) -> (B, T, d_model). It starts as standard attention. The trace's ``extra`` holds ``mixed_from``
    (w1) and ``mixed_into`` (w2), (B, H, T, 1).
    Reference: Xiao et al., "Improving Transformers with Dynamically Composable Multi-Head Attention", ICML 2024,
    https://arxiv.org/abs/2405.08553
    """


register_layer("composition", CompositionAttention)
