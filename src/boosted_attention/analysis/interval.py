"""A mean with its interval over independent observations, as analyses store it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boosted_attention.documentation import documented


@documented
@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean with its 95 % t interval over n observations; one observation has no interval."""

    mean: float  # Mean of the observations.
    low: float  # Lower end of the interval.
    high: float  # Upper end of the interval.
    n: int  # Number of observations.

    def shown(self, digits: int = 4) -> str:
        """The mean, followed by the interval in brackets where there is one."""
        mean = f"{self.mean:.{digits}f}"
        return mean if self.n < 2 else f"{mean} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def interval_of(values: Sequence[float]) -> Interval:
    """The interval of independent values, one per observation."""
    from boosted_attention.statistics import estimate  # needs scipy, whose import would slow down the start of training

    found = estimate(values)
    return Interval(mean=found.mean, low=found.low, high=found.high, n=found.n)
