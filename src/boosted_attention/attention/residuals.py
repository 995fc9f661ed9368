"""Residual rules: what a correction looks at, given the layer's input x and the estimate F so far, each (B, T, D)."""

from torch import Tensor

from boosted_attention.attention.boosting import ResidualRule


def error(x: Tensor, estimate: Tensor) -> Tensor:
    """Return r = x - F, the negative gradient of ||x - F||^2 / 2 (Proposition 2)."""
    return x - estimate


def input_again(x: Tensor, estimate: Tensor) -> Tensor:
    """Return r = x: a second attention beside the first, the control for "is it just more attention?"."""
    return x


def estimate_itself(x: Tensor, estimate: Tensor) -> Tensor:
    """Return r = F: attention upon attention, the control for "is it just one more layer?"."""
    return estimate


RESIDUALS: dict[str, ResidualRule] = {"error": error, "input": input_again, "estimate": estimate_itself}
