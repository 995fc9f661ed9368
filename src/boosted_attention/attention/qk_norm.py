"""Normalised queries and keys: every head of q and k is divided by its root mean square and weighed per dimension.

    n(t) = w * t / rho,    rho = sqrt(mean(t^2) + eps)

It bounds the scores by scale d_h max|w_q| max|w_k|, however large the weights of the projections grow. It stands before
rotary embedding, which only turns q and k, and before a learned scale, which it would undo.

Reference: Henry et al., "Query-Key Normalization for Transformers", 2020, https://arxiv.org/abs/2010.04245;
Dehghani et al., "Scaling Vision Transformers to 22 Billion Parameters", 2023, https://arxiv.org/abs/2302.05442
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

EPS = 1e-6


class HeadNorm(nn.RMSNorm):
    """RMS norm of each head with weights that all heads share: (B, H, T, dh) -> (B, H, T, dh), weights start at 1.

    Args:
        d_head: width of a head.
        device: device of the weights.
        dtype: dtype of the weights.
    """

    def __init__(self, d_head: int, device: Any = None, dtype: Any = None):
        super().__init__(d_head, eps=EPS, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise in float32 or better, also under autocast, and round once."""
        work = torch.promote_types(x.dtype, torch.float32)
        return functional.rms_norm(x.to(work), self.normalized_shape, self.weight.to(work), self.eps).to(x.dtype)

    def derivative(self, x: Tensor, change: Tensor) -> Tensor:
        """Return dn(x) change = w (change - x (x . change) / (d_h rho^2)) / rho, over the last dimension of both."""
        square = x.square().mean(dim=-1, keepdim=True) + EPS  # rho^2
        along = (x * change).mean(dim=-1, keepdim=True) / square
        return self.weight.to(x.dtype) * (change - x * along) * square.rsqrt()
