"""A base learner of one's own, boosted: attention that looks at the last few positions only.

    y_t = softmax(q_t k_s / sqrt(d_h) over t - window < s <= t) v_s

Run it with ``python examples/own_learner.py``.
"""

import torch
from torch import Tensor

from boosted_attention import SoftmaxLearner, attention_layer, list_attention, register_layer, register_learner
from boosted_attention.attention import AttentionLayer, BoostedAttention, LayerOptions, RoundCall


@register_learner("window")
class WindowLearner(SoftmaxLearner):
    """Softmax attention to the nearest positions of the past.

    Args:
        window: Number of positions a query sees, its own included.
    """

    def __init__(self, options: LayerOptions, index: int, *, window: int = 4):
        super().__init__(options, index)
        self.window = window

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        scores = self.scale * q @ k.transpose(-2, -1)  # (B, H, T, T)
        visible = torch.ones_like(scores, dtype=torch.bool).tril().triu(1 - self.window)
        weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
        return (weights @ v).transpose(1, 2).flatten(2)  # (B, T, H*dh)


class WindowAttention(AttentionLayer, learner="window"):
    """Attention to the nearest positions of the past."""


register_layer("window", WindowAttention)
register_layer("boosted-window", BoostedAttention, learner=("softmax", "window"))

if __name__ == "__main__":
    layer = attention_layer("boosted-window", d_model=32, n_heads=4, window=3)  # first everything, then what is near
    y = layer(torch.randn(2, 10, 32), is_causal=True)
    print(layer, tuple(y.shape), list_attention()[-2:], sep="\n")
