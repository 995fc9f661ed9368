"""Gated attention (G1): a sigmoid gate on the attention output, computed from the round's own input.

    y = softmax(Q K^T / sqrt(d_h)) V * sigmoid(z W_theta)        one gate per element, or one per head

Reference: Qiu et al., "Gated Attention for Large Language Models", 2025, https://arxiv.org/abs/2505.06708
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.layer import AttentionLayer, BoostedAttention
from boosted_attention.attention.learner import register_learner
from boosted_attention.attention.options import LayerOptions
from boosted_attention.attention.round_call import RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner


@register_learner("gated")
class GatedLearner(SoftmaxLearner):
    """Softmax attention times sigmoid(z W_theta).

    Args:
        headwise: One gate per head instead of one per element.
    """

    def __init__(self, options: LayerOptions, index: int, *, headwise: bool = False):
        super().__init__(options, index)
        width = options.n_heads if headwise else options.d_inner
        self.theta = nn.Linear(options.d_model, width, bias=options.bias, **options.factory)

    def reset_parameters(self) -> None:
        """Draw all weights anew, in the order of construction."""
        super().reset_parameters()
        self.theta.reset_parameters()

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        y = call.attention(q, k, v, self.scale).transpose(1, 2)  # (B, T, H, dh)
        g = self.theta(z).sigmoid().unflatten(-1, (self.n_heads, -1))  # (B, T, H, dh or 1)
        call.note(output_gate=g)
        return (y * g).flatten(2)


class GatedAttention(AttentionLayer, learner="gated"):
    """Standard attention with a sigmoid gate on its output, softmax(Q K^T / sqrt(d_h)) V * sigmoid(x W_theta).

    x (B, T, d_model) -> (B, T, d_model).
    Reference: Qiu et al., "Gated Attention for Large Language Models", 2025, https://arxiv.org/abs/2505.06708
    """

    if TYPE_CHECKING:  # options of the learner's own are known at run time

        def __init__(self, d_model: int, n_heads: int, **options: Any): ...


register_layer("gated", GatedAttention)
register_layer("gated-headwise", GatedAttention, headwise=True)
register_layer("boosted-gated", BoostedAttention, learner="gated")
