"""Gates: how much of a correction is admitted, the learned shrinkage of the boosting step.

Every gate is a function g(F, c) of the estimate F (B, T, D) and the correction c (B, T, D). In head space D is n_heads
heads side by side, and a gate may have one number for each.
Reference: "Gradient Boosting within a Single Attention Layer", line 7 of Algorithm 1.
"""

from typing import Any

import torch
from torch import Tensor, nn


class NoGate(nn.Module):
    """g = 1: the pure additive correction. The gate is a scalar ()."""

    def __init__(self, d: int, bias: bool = True, n_heads: int = 1, device: Any = None, dtype: Any = None):
        super().__init__()

    def reset_parameters(self) -> None:
        """Do nothing: there are no parameters."""

    def forward(self, estimate: Tensor, correction: Tensor) -> Tensor:
        return correction.new_ones(())


class ScalarGate(nn.Module):
    """g = sigmoid(logit): one shrinkage per round, the eta_m of Friedman's MART; starts at one half. A scalar ()."""

    def __init__(self, d: int, bias: bool = True, n_heads: int = 1, device: Any = None, dtype: Any = None):
        super().__init__()
        self.logit = nn.Parameter(torch.zeros((), device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Start again at one half."""
        nn.init.zeros_(self.logit)

    def forward(self, estimate: Tensor, correction: Tensor) -> Tensor:
        return self.logit.sigmoid()


class TanhGate(nn.Module):
    """g = tanh(theta): one number per round that may turn a correction around; starts at zero, silent. A scalar ().

    Reference: Alayrac et al., "Flamingo", NeurIPS 2022, https://arxiv.org/abs/2204.14198 (layers that are added to a
    trained model).
    """

    def __init__(self, d: int, bias: bool = True, n_heads: int = 1, device: Any = None, dtype: Any = None):
        super().__init__()
        self.theta = nn.Parameter(torch.zeros((), device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Start again at zero."""
        nn.init.zeros_(self.theta)

    def forward(self, estimate: Tensor, correction: Tensor) -> Tensor:
        return self.theta.tanh()


class VectorGate(nn.Module):
    """g = sigmoid(W_g [F || c] + b), (B, T, D): per dimension and input-dependent, the paper's gate."""

    def __init__(self, d: int, bias: bool = True, n_heads: int = 1, device: Any = None, dtype: Any = None):
        super().__init__()
        self.proj = nn.Linear(2 * d, d, bias=bias, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw the weights anew, as construction did."""
        self.proj.reset_parameters()

    def forward(self, estimate: Tensor, correction: Tensor) -> Tensor:
        return self.proj(torch.cat([estimate, correction], dim=-1)).sigmoid()  # (B, T, 2D) -> (B, T, D)


class MLPGate(nn.Module):
    """g = sigmoid(W_2 gelu(W_1 [F || c] + b_1) + b_2), (B, T, D): the vector gate with a hidden layer."""

    def __init__(self, d: int, bias: bool = True, n_heads: int = 1, device: Any = None, dtype: Any = None):
        super().__init__()
        self.hidden = nn.Linear(2 * d, d, bias=bias, device=device, dtype=dtype)
        self.proj = nn.Linear(d, d, bias=bias, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw the weights anew, as construction did."""
        self.hidden.reset_parameters()
        self.proj.reset_parameters()

    def forward(self, estimate: Tensor, correction: Tensor) -> Tensor:
        hidden = nn.functional.gelu(self.hidden(torch.cat([estimate, correction], dim=-1)))  # (B, T, 2D) -> (B, T, D)
        return self.proj(hidden).sigmoid()


class HeadwiseGate(nn.Module):
    """g = sigmoid(W_g [F || c] + b), one number per head for all its dimensions, (B, T, D).

    Reference: Qiu et al., "Gated Attention for Large Language Models", 2025, https://arxiv.org/abs/2505.06708 (a gate
    per head of an attention's output, there from x).
    """

    def __init__(self, d: int, bias: bool = True, n_heads: int = 1, device: Any = None, dtype: Any = None):
        super().__init__()
        self.d_head = d // n_heads
        self.proj = nn.Linear(2 * d, n_heads, bias=bias, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw the weights anew, as construction did."""
        self.proj.reset_parameters()

    def forward(self, estimate: Tensor, correction: Tensor) -> Tensor:
        g = self.proj(torch.cat([estimate, correction], dim=-1)).sigmoid()  # (B, T, 2D) -> (B, T, H)
        return g.repeat_interleave(self.d_head, dim=-1)


class TanhHeadwiseGate(nn.Module):
    """g = tanh(theta_h): one number per head that may turn a correction around; starts at zero, silent. (D,)."""

    def __init__(self, d: int, bias: bool = True, n_heads: int = 1, device: Any = None, dtype: Any = None):
        super().__init__()
        self.d_head = d // n_heads
        self.theta = nn.Parameter(torch.zeros(n_heads, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Start again at zero."""
        nn.init.zeros_(self.theta)

    def forward(self, estimate: Tensor, correction: Tensor) -> Tensor:
        return self.theta.tanh().to(correction.dtype).repeat_interleave(self.d_head)


GATES: dict[str, type[nn.Module]] = {
    "none": NoGate,
    "scalar": ScalarGate,
    "tanh": TanhGate,
    "vector": VectorGate,
    "mlp": MLPGate,
    "headwise": HeadwiseGate,
    "tanh-headwise": TanhHeadwiseGate,
}
