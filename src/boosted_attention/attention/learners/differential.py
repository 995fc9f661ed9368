"""Differential attention: the difference of two attention maps cancels what both attend to.

Version 1. The n_heads maps form n_heads/2 pairs; values have twice the head width.

    lambda = exp(lq1 . lk1) - exp(lq2 . lk2) + lambda_init(l),    lambda_init(l) = 0.8 - 0.6 exp(-0.3 l)
    y = RMSNorm((A_1 - lambda A_2) V) * (1 - lambda_init)

Version 2 (2026). 2 n_heads query heads; the two of a pair share keys and values; no norm, no lambda_init.

    y = A_even V - sigmoid(z W_lambda) * A_odd V

Reference: Ye et al., "Differential Transformer", ICLR 2025, and its second version, 2026.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.heads import merge_heads
from boosted_attention.attention.kernels import fused
from boosted_attention.attention.layer import AttentionLayer, BoostedAttention
from boosted_attention.attention.learner import register_learner
from boosted_attention.attention.options import LayerOptions
from boosted_attention.attention.round_call import RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner
from boosted_attention.validation import require


def lambda_init(layer_index: int) -> float:
    """Return where lambda starts in the layer at this place of the model."""
    return 0.8 - 0.6 * math.exp(-0.3 * layer_index)


LAMBDAS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
LAMBDA_STD = 0.1


def drawn_lambda(d: int, device: Any, dtype: Any) -> Tensor:
    """Draw one of the four lambda vectors from N(0, 0.1^2)."""
    return LAMBDA_STD * nn.init.normal_(torch.empty(d, device=device, dtype=dtype))


@register_learner("differential")
class DifferentialLearner(SoftmaxLearner):
    """Version 1. Heads 2j and 2j+1 are the two maps of pair j; under GQA pair j reads key pair j // group."""

    fused_score_passes = 2
    heads_per_value = 2  # values are (B, H_kv/2, S, 2dh)
    random_start = dict.fromkeys(LAMBDAS, LAMBDA_STD)

    def __init__(self, options: LayerOptions, index: int):
        for option, value in (("n_heads", options.n_heads), ("n_kv_heads", options.kv_heads[index])):
            require(value % 2 == 0, f"{option}={value} must be even: differential attention pairs its maps")
        super().__init__(options, index)
        self.n_pairs = self.n_heads // 2
        self.lambda_init = lambda_init(options.layer_index)
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(drawn_lambda(self.d_head, **options.factory)) for _ in range(4)
        )
        self.norm = nn.RMSNorm(2 * self.d_head, eps=1e-5, **options.factory)

    def reset_parameters(self) -> None:
        """Draw all weights anew, in the order of construction."""
        super().reset_parameters()
        with torch.no_grad():
            for p in (self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2):
                p.copy_(drawn_lambda(self.d_head, p.device, p.dtype))
        self.norm.reset_parameters()

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        k, v = self._per_map(k, 2), self._per_map(v, 1).repeat_interleave(2, dim=1)  # (B, H, S, dh), (B, H, S, 2dh)
        # A fused kernel needs values as wide as queries: one call per half, but each would draw its own dropout mask.
        parts = v.chunk(2, dim=-1) if call.kernel is fused and call.dropout == 0.0 else (v,)
        attend = call.map(q, k, self.scale)
        y = torch.cat([attend(part) for part in parts], dim=-1)
        lam = self.lambda_value()
        call.note(**{"lambda": lam})
        y = y.to(lam.dtype)  # under autocast the difference and its norm stay in float32
        y = y.unflatten(1, (self.n_pairs, 2))  # (B, H/2, 2, T, 2dh)
        y = self.norm(y[:, :, 0] - lam * y[:, :, 1]) * (1 - self.lambda_init)  # (B, H/2, T, 2dh)
        return merge_heads(y)

    def map_flops(self, n_keys: int) -> int:
        """Count scores, and weights times values that are twice as wide."""
        return self.scores_flops(n_keys) + 2 * (2 * self.split_sizes[0]) * n_keys

    def lambda_value(self) -> Tensor:
        """Return lambda = exp(lq1 . lk1) - exp(lq2 . lk2) + lambda_init, ()."""
        first = (self.lambda_q1 * self.lambda_k1).sum().exp()
        second = (self.lambda_q2 * self.lambda_k2).sum().exp()
        return first - second + self.lambda_init

    def _per_map(self, t: Tensor, maps: int) -> Tensor:
        """Repeat groups of ``maps`` adjacent heads so that every pair has its own, (B, n_pairs * maps, S, d)."""
        groups = t.shape[1] // maps
        if groups == self.n_pairs:
            return t
        t = t.unflatten(1, (groups, maps)).repeat_interleave(self.n_pairs // groups, dim=1)
        return t.flatten(1, 2)


@register_learner("differential-v2")
class DifferentialV2Learner(SoftmaxLearner):
    """Version 2: twice the query heads, everything else as in standard attention."""

    def __init__(self, options: LayerOptions, index: int):
        super().__init__(options, index)
        self.lambda_proj = nn.Linear(options.d_model, options.n_heads, bias=options.bias, **options.factory)

    def reset_parameters(self) -> None:
        """Draw all weights anew, in the order of construction."""
        super().reset_parameters()
        self.lambda_proj.reset_parameters()

    def projection_widths(self) -> tuple[int, int, int]:
        """Return the usual widths, with twice the queries."""
        q, k, v = super().projection_widths()
        return 2 * q, k, v

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        y = call.attention(q, k, v, self.scale)  # (B, 2H, T, dh)
        lam = self.lambda_proj(z).sigmoid().transpose(1, 2)[..., None]  # (B, H, T, 1)
        call.note(**{"lambda": lam})
        return merge_heads(y[:, 0::2] - lam * y[:, 1::2])


class DifferentialAttention(AttentionLayer, learner="differential"):
    """Differential attention, the difference of two attention maps: RMSNorm((A_1 - lambda A_2) V) (1 - lambda_init).

    x (B, T, d_model) -> (B, T, d_model). ``n_heads`` is the baseline's number of heads, which form n_heads / 2 pairs.
    ``learner="differential-v2"`` is the paper's second version, A_even V - sigmoid(x W_lambda) * A_odd V.
    Reference: Ye et al., "Differential Transformer", ICLR 2025, https://arxiv.org/abs/2410.05258, and its second
    version, 2026.
    """


register_layer("differential", DifferentialAttention)
register_layer("differential-v2", DifferentialAttention, learner="differential-v2")
register_layer("boosted-differential", BoostedAttention, learner="differential")
