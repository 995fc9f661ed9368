"""The finding that a check returns, and the random numbers that checks draw."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A statement of the paper and a limit of it, both measured.

    Args:
        name: number of the proposition, or a short name.
        paper: what the paper says, in our words.
        measured: what was measured of it, by name.
        holds: whether the measurement bears the statement out.
        condition: the limit: when the statement is vacuous or fails.
        counter: what was measured at the limit, by name.
        counter_holds: whether the limit showed.
    """

    name: str
    paper: str
    measured: dict[str, float]
    holds: bool
    condition: str
    counter: dict[str, float]
    counter_holds: bool


def generator(seed: int) -> torch.Generator:
    """A source of random numbers that starts at ``seed``."""
    return torch.Generator().manual_seed(seed)


def gaussian(*shape: int, draw: torch.Generator) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(*shape, generator=draw, dtype=torch.float64)
