"""Gated attention (G1): a sigmoid gate on the attention output, computed from the round's own input.

    y = softmax(Q K^T / sqrt(d_h)) V * sigmoid(z W_theta)        one gate per element, or one per head

Reference: Qiu et al., "Gated Attention for Large Language Models", 2025.
"""

from functools import partial
from typing import Unpack

from torch import Tensor, nn

from boosted_attention.attention.config import CommonOptions, LayerConfig, common_options
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learners import LEARNERS, RoundCall, SoftmaxLearner
from boosted_attention.validation import require_choice


class GatedLearner(SoftmaxLearner):
    def __init__(self, config: LayerConfig, index: int, *, headwise: bool = False):
        super().__init__(config, index)
        self.theta = nn.Linear(config.d_model, config.n_heads if headwise else config.d_inner, bias=config.bias)

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        y = call.attention(q, k, v, self.scale).transpose(1, 2)  # (B, T, H, dh)
        g = self.theta(z).sigmoid().unflatten(-1, (self.n_heads, -1))  # (B, T, H, dh or 1)
        call.note(output_gate=g)
        return (y * g).flatten(2)


LEARNERS["gated"] = GatedLearner
LEARNERS["gated-headwise"] = partial(GatedLearner, headwise=True)


class GatedAttention(AttentionLayer):
    """Standard attention with a sigmoid output gate: ``granularity`` "elementwise" or "headwise"."""

    def __init__(
        self, d_model: int, n_heads: int, *, granularity: str = "elementwise", **common: Unpack[CommonOptions]
    ):
        require_choice("granularity", granularity, ("elementwise", "headwise"))
        learner = "gated" if granularity == "elementwise" else "gated-headwise"
        super().__init__(LayerConfig(d_model=d_model, n_heads=n_heads, learner=learner, **common_options(common)))
