"""Intervals and tests over seeds: paired differences, t tests, equivalence, Holm's correction, and power."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
    over: str = "seeds"  # what n counts

    @property
    def standard_error(self) -> float:
        return self.std / math.sqrt(max(1, self.n))

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


def t_quantile(df: int, confidence: float = CONFIDENCE) -> float:
    """Return the quantile of Student's t that bounds a two-sided interval, of 95 % by default."""
    return float(special.stdtrit(df, (1 + confidence) / 2))  # scipy.stats takes half a second to import


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


def share(percent: float, n: int, over: str) -> Estimate:
    """A percentage of n independent cases, with its normal 95 % interval; ``over`` says what the cases are."""
    std = math.sqrt(percent * (100 - percent))
    half = float(special.ndtri((1 + CONFIDENCE) / 2)) * std / math.sqrt(n)
    return Estimate(
        mean=percent, low=max(0.0, percent - half), high=min(100.0, percent + half), std=std, n=n, over=over
    )


def p_above(e: Estimate, target: float) -> float:
    """One-sided p value of a t test that the mean lies above ``target``: small where it does.

    Without spread there is nothing to test: 0 above the target, 1 elsewhere.
    """
    distance = e.mean - target
    if e.std == 0 or e.n < 2:
        return 0.0 if distance > 0 else 1.0
    return float(special.stdtr(e.n - 1, -distance / e.standard_error))


def p_below(e: Estimate, target: float) -> float:
    """One-sided p value of a t test that the mean lies below ``target``: small where it does."""
    return p_above(replace(e, mean=-e.mean), -target)


def p_within(e: Estimate, low: float, high: float) -> float:
    """p value of two one-sided t tests that the mean lies between two bounds: small where it does.

    Reference: Schuirmann, "A comparison of the two one-sided tests procedure and the power approach", 1987.
    """
    return max(p_above(e, low), p_below(e, high))


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
    return next((n for n in range(2, 10_001) if power_of(effect, std, n) >= power), None)


def smallest_effect(std: float, n: int, power: float = 0.8, level: float = 1 - CONFIDENCE) -> float:
    """Smallest effect that n paired seeds show with the given power, in a two-sided t test of a level (5 %)."""
    low, high = 0.0, std
    while power_of(high, std, n, level) < power:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if power_of(middle, std, n, level) < power else (low, middle)
    return high


def power_of(effect: float, std: float, n: int, level: float = 1 - CONFIDENCE) -> float:
    """Chance that a two-sided t test of a level (5 %) over n paired seeds sees an effect, on its own side."""
    if std == 0:
        return 1.0
    return 1 - float(special.nctdtr(n - 1, abs(effect) / std * math.sqrt(n), t_quantile(n - 1, 1 - level)))
