"""Value residual: every layer reads the first layer's values beside its own.

    v^l <- l1 v^l + l2 v^1        l > 1; l1 and l2 learned per layer, both 1/2 at the start

v^1 are the values of the first layer's round 0 as they were projected. The mixture takes the place of round 0's values
in each later layer, and so of all values that other rounds share with it; a cache holds the mixture.

Reference: Zhou et al., "Value Residual Learning", 2024, https://arxiv.org/abs/2410.17897 (ResFormer)
"""

import torch
from torch import Tensor, nn


class FirstValues:
    """The values of the first layer, kept for the layers behind it during one pass through the blocks."""

    values: Tensor  # (B, H_kv, T, dv)

    def keep(self, values: Tensor) -> Tensor:
        """Remember the first layer's values and return them as they are."""
        self.values = values
        return values


class ValueResidual(nn.Module):
    """A layer's own values mixed with the first layer's: (B, H_kv, T, dv) -> (B, H_kv, T, dv)."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.empty(2))  # l1 of the layer's own values, l2 of the first layer's
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again at one half each."""
        nn.init.constant_(self.weights, 0.5)

    def forward(self, own: Tensor, first: FirstValues) -> Tensor:
        of_own, of_first = self.weights.to(own.dtype)
        return of_own * own + of_first * first.values
