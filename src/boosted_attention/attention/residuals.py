"""Residual rules: what a correction looks at, given the layer's input x and the estimate F so far, each (B, T, D)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Residual(nn.Module):
    """A rule without weights.

    Args:
        d: width of F, for rules with weights.
        device: device of the weights.
        dtype: dtype of the weights.
    """

    def __init__(self, d: int = 0, device: Any = None, dtype: Any = None):
        super().__init__()

    def reset_parameters(self) -> None:
        """Do nothing: there are no weights."""


class ErrorResidual(Residual):
    """r = x - F, the negative gradient of ||x - F||^2 / 2 (Proposition 2)."""

    def forward(self, x: Tensor, estimate: Tensor) -> Tensor:
        return x - estimate


class InputResidual(Residual):
    """r = x: a second attention beside the first, the control for "is it just more attention?"."""

    def forward(self, x: Tensor, estimate: Tensor) -> Tensor:
        return x


class EstimateResidual(Residual):
    """r = F: attention upon attention, the control for "is it just one more layer?"."""

    def forward(self, x: Tensor, estimate: Tensor) -> Tensor:
        return estimate


class NormalisedResidual(Residual):
    """r = x - rho * F / sqrt(mean(F^2) + eps), rho per dimension, from 1; eps is the dtype's, as in ``nn.RMSNorm``.

    In a trained model F is small beside a normalised x, so that x - F is x again; here both have one size.

    Args:
        d: width of F.
        device: device of the weights.
        dtype: dtype of the weights.
    """

    def __init__(self, d: int = 0, device: Any = None, dtype: Any = None):
        super().__init__()
        self.rho = nn.Parameter(torch.ones(d, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Start again at 1."""
        nn.init.ones_(self.rho)

    def forward(self, x: Tensor, estimate: Tensor) -> Tensor:
        work = torch.promote_types(estimate.dtype, torch.float32)  # also under autocast, and rounded once
        scaled = functional.rms_norm(estimate.to(work), estimate.shape[-1:], self.rho.to(work))
        return x - scaled.to(estimate.dtype)


RESIDUALS: dict[str, type[Residual]] = {
    "error": ErrorResidual,
    "input": InputResidual,
    "estimate": EstimateResidual,
    "normalised": NormalisedResidual,
}
