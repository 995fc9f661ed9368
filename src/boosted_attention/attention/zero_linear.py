"""Linear maps that start at zero: a learner that has one starts as the attention it refines."""

from typing import Any

from torch import nn


class ZeroLinear(nn.Linear):
    """Linear map without bias that starts at zero, (..., d_in) -> (..., d_out).

    Args:
        d_in: width of the input.
        d_out: width of the output.
        device: device of the weights.
        dtype: dtype of the weights.
    """

    def __init__(self, d_in: int, d_out: int, device: Any = None, dtype: Any = None):
        super().__init__(d_in, d_out, bias=False, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Start again at zero."""
        nn.init.zeros_(self.weight)
