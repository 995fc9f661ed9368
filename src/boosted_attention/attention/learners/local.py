"""Local rounds: short causal convolutions, over the keys of the first round and over what is still missing.

    k_t <- k_t + sum_{tau=1..3} a_tau * k_{t-tau}        round 0 is softmax attention to these keys
    c_t =        sum_{tau=0..3} w_tau * r_{t-tau}        the correction, without a gate

Both are per dimension and start at a = w = 0, as standard attention. Keys are mixed behind their norm and before rotary
embedding. A position counts as absent where the mask hides it from t, such as padding or another document: t - tau is
used only if some head lets t see it. The cache keeps the last three keys and residuals.

With r = x - F the correction is a round of boosting; the residual rules give the placements of the literature as
controls, r = F (a convolution behind attention) and r = x (Canon, beside it).

Reference: So et al., "Primer", 2021, https://arxiv.org/abs/2109.08668 (convolutions behind the projections);
Xu et al., "KV Shifting Attention", 2024, https://arxiv.org/abs/2411.19574; Allen-Zhu, "Physics of Language Models: Part
4.1", 2025, https://arxiv.org/abs/2512.17351 (Canon layers).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learner import Learner, register_learner
from boosted_attention.attention.options import LayerOptions
from boosted_attention.attention.precision import linear_dtype
from boosted_attention.attention.round_call import KeyValue, Projected, RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner

REACH = 3  # positions before its own that a convolution reads


class ShortConvolution(nn.Module):
    """y_t = sum over lags of weight_lag * z_{t-lag}, per dimension: (B, H, T, d) -> (B, H, T, d); weights start at 0.

    Args:
        n_heads: H.
        width: d.
        lags: distances tau to the positions read, at most REACH.
        device: device of the weights.
        dtype: dtype of the weights.
    """

    def __init__(self, n_heads: int, width: int, lags: Sequence[int], device: Any = None, dtype: Any = None):
        super().__init__()
        self.lags = tuple(lags)
        # Four dimensions, so that no optimizer takes these vectors for a matrix.
        self.weight = nn.Parameter(torch.zeros(len(self.lags), n_heads, 1, width, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Start again at zero."""
        nn.init.zeros_(self.weight)

    def forward(self, z: Tensor, slot: str, call: RoundCall) -> Tensor:
        """Mix z (B, H, T, d) over the positions that the mask shows; the cache keeps the last ones in ``slot``."""
        length = z.shape[2]
        whole = call.recent(slot, z, REACH)  # (B, H, 3 + T, d)
        visible = call.sees_recent(REACH + 1)  # (B, T, 4)
        y = torch.zeros_like(z)
        for weight, lag in zip(self.weight.to(z.dtype), self.lags, strict=True):  # weight: (H, 1, d)
            before = whole[:, :, REACH - lag : REACH - lag + length]
            if visible is not None:
                before = before.masked_fill(~visible[:, None, :, lag, None], 0.0)
            y = torch.addcmul(y, weight, before)
        return y

    def extra_repr(self) -> str:
        return f"lags={self.lags}, weight={tuple(self.weight.shape)}"


@register_learner("local-keys")
class LocalKeysLearner(SoftmaxLearner):
    """Softmax attention to keys that each carry a little of the three before: k_t + sum_tau a_tau * k_{t-tau}."""

    needs_square_map = True

    def __init__(self, options: LayerOptions, index: int):
        super().__init__(options, index)
        self.k_convolution = None
        if "k" in self.parts:
            lags = range(1, REACH + 1)
            self.k_convolution = ShortConvolution(self.n_kv_heads, self.d_head, lags, **options.factory)

    def reset_parameters(self) -> None:
        """Draw all weights anew; those of the convolution start at zero."""
        super().reset_parameters()
        if self.k_convolution is not None:
            self.k_convolution.reset_parameters()

    def mixed_keys(self, k: Tensor, call: RoundCall) -> Tensor:
        """Add to every key what the convolution finds before it."""
        return k if self.k_convolution is None else k + self.k_convolution(k, "own k", call)


@register_learner("local")
class LocalLearner(Learner):
    """A round without attention: c_t = sum_{tau=0..3} w_tau * r_{t-tau}, in either space without a projection."""

    needs_square_map = True
    only_corrects = True
    starts_at_zero = True

    def __init__(self, options: LayerOptions, index: int):
        super().__init__(options, index)
        self.convolution = ShortConvolution(1, options.d_estimate, range(REACH + 1), **options.factory)

    def reset_parameters(self) -> None:
        """Start again at zero."""
        self.convolution.reset_parameters()

    def forward(self, z: Tensor, shared: Projected | None, source: KeyValue, call: RoundCall) -> tuple[Tensor, None]:
        """Convolve the residual; arguments as in ``Learner.forward``."""
        return self.convolution(z[:, None], "r", call)[:, 0].to(linear_dtype(z)), None


class LocalAttention(AttentionLayer, n_rounds=2, learner=("local-keys", "local"), gate="none"):
    """Attention with short convolutions: over its keys, and, as a correction, over x - F.

        k_t <- k_t + sum_{tau=1..3} a_tau * k_{t-tau};   F = Attn(x);   r = x - F
        F_t <- F_t + sum_{tau=0..3} w_tau * r_{t-tau}

    x (B, T, d_model) -> (B, T, d_model). Refuses ``memory``. ``residual="estimate"`` and ``"input"`` are the controls.
    Reference: So et al., "Primer", 2021, https://arxiv.org/abs/2109.08668; Allen-Zhu, "Physics of Language Models: Part
    4.1", 2025, https://arxiv.org/abs/2512.17351
    """


register_layer("local", LocalAttention)
register_layer("local-keys", AttentionLayer, learner="local-keys")
register_layer("local-correction", LocalAttention, learner=("softmax", "local"))
