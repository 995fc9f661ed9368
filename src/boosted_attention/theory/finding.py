"""What a check returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A statement of the paper, whether the measurement bears it out, and its limit with the limit executed too."""

    name: str
    paper: str  # what it says, in our words
    measured: dict[str, float]
    holds: bool
    condition: str  # when it is vacuous or fails
    counter: dict[str, float]  # what was measured there
    counter_holds: bool  # whether the limit showed


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(*shape: int, draw: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)
