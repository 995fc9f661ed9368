"""Gates: how much of a correction is admitted, the learned shrinkage of the boosting step."""

import torch
from torch import Tensor, nn


class NoGate(nn.Module):
    """g = 1: the pure additive correction."""

    def __init__(self, d: int, bias: bool = True):
        super().__init__()

    def forward(self, estimate: Tensor, correction: Tensor) -> Tensor:
        return correction.new_ones(())


class ScalarGate(nn.Module):
    """g = sigmoid(logit): one shrinkage per round, the eta_m of Friedman's MART; starts at one half."""

    def __init__(self, d: int, bias: bool = True):
        super().__init__()
        self.logit = nn.Parameter(torch.zeros(()))

    def forward(self, estimate: Tensor, correction: Tensor) -> Tensor:
        return self.logit.sigmoid()


class VectorGate(nn.Module):
    """g = sigmoid(W_g [F || c] + b): per dimension and input-dependent, line 7 of Algorithm 1."""

    def __init__(self, d: int, bias: bool = True):
        super().__init__()
        self.proj = nn.Linear(2 * d, d, bias=bias)

    def forward(self, estimate: Tensor, correction: Tensor) -> Tensor:
        return self.proj(torch.cat([estimate, correction], dim=-1)).sigmoid()  # (B, T, 2D) -> (B, T, D)


class MLPGate(nn.Module):
    """g = sigmoid(W_2 gelu(W_1 [F || c])): the vector gate with a hidden layer."""

    def __init__(self, d: int, bias: bool = True):
        super().__init__()
        self.hidden = nn.Linear(2 * d, d, bias=bias)
        self.proj = nn.Linear(d, d, bias=bias)

    def forward(self, estimate: Tensor, correction: Tensor) -> Tensor:
        hidden = nn.functional.gelu(self.hidden(torch.cat([estimate, correction], dim=-1)))  # (B, T, 2D) -> (B, T, D)
        return self.proj(hidden).sigmoid()


GATES: dict[str, type[nn.Module]] = {"none": NoGate, "scalar": ScalarGate, "vector": VectorGate, "mlp": MLPGate}
