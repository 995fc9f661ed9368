"""Intervals over seeds: paired differences, t intervals, Holm's correction, and how many seeds an effect needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from boosted_attention.validation import require

CONFIDENCE = 0.95
BOOTSTRAP_FROM = 30  # with fewer seeds a percentile bootstrap is narrower than it should be
BOOTSTRAP_DRAWS = 2_000


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over n seeds with its 95 % t interval. n = 1 has no interval, and n = 0 needs none: no randomness."""

    mean: float
    low: float
    high: float
    std: float
    n: int
    p: float | None = None  # two-sided, that the mean is zero; None without spread
    bootstrap: tuple[float, float] | None = None

    @property
    def standard_error(self) -> float:
        return self.std / math.sqrt(max(1, self.n))

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


def t_quantile(df: int) -> float:
    """Return the quantile of Student's t that bounds a two-sided 95 % interval."""
    return float(special.stdtrit(df, (1 + CONFIDENCE) / 2))  # scipy.stats takes half a second to import


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and t interval of independent values, one per seed."""
    data = np.asarray(values, dtype=float)
    require(data.size >= 1, "an estimate needs at least one value")
    mean, n = float(data.mean()), int(data.size)
    if n == 1:
        return Estimate(mean=mean, low=mean, high=mean, std=0.0, n=1)
    std = float(data.std(ddof=1))
    half = t_quantile(n - 1) * std / math.sqrt(n)
    p = 2 * float(special.stdtr(n - 1, -abs(mean) / (std / math.sqrt(n)))) if std > 0 else None
    return Estimate(mean=mean, low=mean - half, high=mean + half, std=std, n=n, p=p, bootstrap=bootstrap(data))


def bootstrap(data: np.ndarray) -> tuple[float, float] | None:
    """The percentile interval of the mean, only where there are seeds enough for it."""
    if data.size < BOOTSTRAP_FROM:
        return None
    draws = np.random.default_rng(0).choice(data, size=(BOOTSTRAP_DRAWS, data.size)).mean(axis=1)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(draws, [tail, 100 - tail])
    return float(low), float(high)


def paired_difference(a: Mapping[int, float], b: Mapping[int, float]) -> Estimate:
    """a - b over the seeds both have, seed by seed."""
    seeds = sorted(set(a) & set(b))
    require(bool(seeds), "a paired difference needs a seed that both sides have")
    return estimate([a[seed] - b[seed] for seed in seeds])


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: compare each with 0.05 and the chance of any false alarm stays below it."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    running = 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return [float(p) for p in adjusted]


def seeds_needed(effect: float, std: float, power: float = 0.8) -> int | None:
    """Paired seeds for a two-sided 5 % t test to see ``effect`` with the given power; None beyond 10,000."""
    if effect == 0:
        return None
    if std == 0:
        return 2
    for n in range(2, 10_001):
        shift = abs(effect) / std * math.sqrt(n)
        critical = t_quantile(n - 1)
        if 1 - float(special.nctdtr(n - 1, shift, critical)) >= power:
            return n
    return None
