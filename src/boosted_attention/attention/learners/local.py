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
from boosted_attention.compat import inside_transform

REACH = 3  # positions before its own that a convolution reads


def convolve(whole: Tensor, weight: Tensor, visible: Tensor | None, lags: Sequence[int]) -> Tensor:
    """Return y_t = sum over lags of weight_lag * z_{t-lag}, (B, H, T, d).

    Args:
        whole: z behind the REACH positions before it (B, H, 3 + T, d).
        weight: one row of weights per lag (lags, H, 1, d).
        visible: which of the last positions, its own first, each one may see (B, T, 4); None for all.
        lags: distances to the positions read.
    """
    (weight_0, lag_0), *others = zip(weight, lags, strict=True)
    y = weight_0 * shown(earlier(whole, lag_0), visible, lag_0)  # (B, H, T, d)
    for row, lag in others:
        y = torch.addcmul(y, row, shown(earlier(whole, lag), visible, lag))
    return y


def earlier(whole: Tensor, lag: int) -> Tensor:
    """Return what stands ``lag`` before every position, (B, H, 3 + T, d) -> (B, H, T, d), a view."""
    return whole[:, :, REACH - lag : whole.shape[2] - lag]


def shown(t: Tensor, visible: Tensor | None, lag: int) -> Tensor:
    """Return t (B, H, T, d) with zeros at the positions from which the one ``lag`` before is not visible."""
    return t if visible is None else t.masked_fill(~visible[:, None, :, lag, None], 0.0)


class Convolve(torch.autograd.Function):
    """``convolve`` with a backward pass of its own.

    Autograd's writes one padded gradient of ``whole`` per lag; this one adds every lag to the same tensor.
    """

    @staticmethod
    def forward(ctx: Any, whole: Tensor, weight: Tensor, visible: Tensor | None, lags: Sequence[int]) -> Tensor:
        """Convolve, and keep what the backward pass reads."""
        ctx.lags = lags
        ctx.save_for_backward(whole, weight, visible)
        return convolve(whole, weight, visible, lags)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Return the gradients of ``whole`` and ``weight``, by operations that have gradients themselves."""
        (grad,) = grads  # (B, H, T, d)
        whole, weight, visible = ctx.saved_tensors
        of_whole, of_weight = grad.new_zeros(whole.shape), []
        for row, lag in zip(weight, ctx.lags, strict=True):
            given = shown(grad, visible, lag)
            of_weight.append((given * earlier(whole, lag)).sum(dim=(0, 2)).unsqueeze(1))  # (H, 1, d)
            earlier(of_whole, lag).addcmul_(row, given)
        return of_whole, torch.stack(of_weight), None, None


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
        beside = z.transpose(1, 2).flatten(2).unsqueeze(1)  # (B, 1, T, H*d): long rows are faster than short ones
        weight = self.weight.to(z.dtype).flatten(1)[:, None, None]  # (lags, 1, 1, H*d)
        traced = torch.compiler.is_compiling() or inside_transform()  # by what makes a backward pass itself
        run = convolve if traced else Convolve.apply
        y = run(call.recent(slot, beside, REACH), weight, call.sees_recent(REACH + 1), self.lags)  # (B, 1, T, H*d)
        return y.squeeze(1).unflatten(-1, (z.shape[1], -1)).transpose(1, 2)

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
