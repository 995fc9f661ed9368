"""The verdicts, and the rules by which one estimate is judged. docs/judging.md says them in words, with error rates.

A number of the paper is judged by itself. A direction, an equivalence or a check is a test: ``Criterion.test`` gives
its p values, and judge.py decides with the rest of its family.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from boosted_attention.statistics import Estimate, p_above, p_below, p_within, smallest_effect, t_quantile

REPRODUCED = "reproduced"
CANNOT_TELL = "cannot tell"
NOT_REPRODUCED = "not reproduced"
CONTRADICTED = "contradicted"
FAILED = "failed"
OPEN = "open"
NOT_RUN = "not run"
VERDICTS = (REPRODUCED, CANNOT_TELL, NOT_REPRODUCED, CONTRADICTED, FAILED, OPEN, NOT_RUN)

LEVEL = 0.05
FEWEST_SEEDS = 3  # two differences that happen to agree decide nothing


@dataclass(frozen=True, kw_only=True)
class PValues:
    """p values of one estimate, before any correction: small where it supports or opposes the claim."""

    supports: float
    opposes: float


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """What decides a claim: a rule by name, with its numbers.

    Args:
        rule: a name of TESTS or VALUES.
        target: the number compared with; the paper's figure where that is judged.
        margin: how far an equivalence may be off.
        rival: figure that the paper's must be told from; the paper's baseline, or zero for a gain.
        runs: runs behind the paper's figure; None means as many as ours.
        decimals: digits of the paper's figure behind the point, for numbers without randomness.
    """

    rule: str
    target: float = 0.0
    margin: float = 0.0
    rival: float = 0.0
    runs: int | None = 1
    decimals: int = 0

    @property
    def is_test(self) -> bool:
        """Whether the claim is decided together with its family."""
        return self.rule in TESTS

    def test(self, ours: Estimate) -> PValues | None:
        """Return the p values; None with too few seeds."""
        return None if too_few(ours) else TESTS[self.rule](ours, self)

    def judge(self, ours: Estimate) -> str:
        """Return the verdict of a rule that needs no family."""
        return CANNOT_TELL if too_few(ours) and self.rule != "open" else VALUES[self.rule](ours, self)

    def limit(self, ours: Estimate, level: float = LEVEL) -> str:
        """Say the smallest effect that the seeds could have shown.

        Args:
            ours: our number.
            level: what a test's p value must stay below, where a correction for its family asks for less than 5 %.
        """
        if too_few(ours):
            return f"{ours.n} {ours.over}, at least {FEWEST_SEEDS} are needed"
        corrected = f", at a level of {100 * level:.2g} %" if self.is_test and level < LEVEL else ""
        return f"{ours.n} {ours.over} {LIMITS[self.rule].format(self.smallest(ours, level))}{corrected}"

    def smallest(self, ours: Estimate, level: float = LEVEL) -> float:
        """Return what LIMITS speaks of: the smallest distance, margin or effect that the seeds could have shown.

        Args:
            ours: our number.
            level: what a test's p value must stay below.
        """
        if self.rule == "number":
            return 2 * self.half_width(ours)
        if self.rule == "equal":
            return abs(ours.mean - self.target) + t_quantile(ours.n - 1, 1 - level) * ours.standard_error
        return smallest_effect(ours.std, ours.n, level=level)

    def half_width(self, ours: Estimate) -> float:
        """Return how far our mean and the paper's figure may lie apart by chance: t s sqrt(1/n + 1/k)."""
        runs = ours.n if self.runs is None else self.runs
        return t_quantile(ours.n - 1) * ours.std * math.sqrt(1 / ours.n + 1 / runs)

    def __str__(self) -> str:
        words = WORDING[self.rule].format(target=self.target, margin=self.margin, rival=self.rival)
        if self.rule == "number":
            behind = {1: "one run", 2: "two runs"}.get(self.runs or 0, "as many cases as ours")
            words += f", which is of {behind}"
        return words


def too_few(ours: Estimate) -> bool:
    """Whether there are seeds, but not enough to decide anything."""
    return 0 < ours.n < FEWEST_SEEDS


def judge_number(ours: Estimate, c: Criterion) -> str:
    assert ours.n > 0, "a number without randomness is judged by its digits"
    half = c.half_width(ours)
    if half >= abs(c.target - c.rival) / 2:
        return CANNOT_TELL  # noise this wide agrees with the rival as well
    return REPRODUCED if abs(ours.mean - c.target) <= half else NOT_REPRODUCED


def judge_digits(ours: Estimate, c: Criterion) -> str:
    return REPRODUCED if abs(ours.mean - c.target) <= 0.5 * 10.0**-c.decimals else NOT_REPRODUCED


def decide_above(ours: Estimate, c: Criterion) -> PValues:
    return PValues(supports=two_sided(p_above(ours, c.target)), opposes=two_sided(p_below(ours, c.target)))


def decide_below(ours: Estimate, c: Criterion) -> PValues:
    return PValues(supports=two_sided(p_below(ours, c.target)), opposes=two_sided(p_above(ours, c.target)))


def decide_equal(ours: Estimate, c: Criterion) -> PValues:
    low, high = c.target - c.margin, c.target + c.margin
    outside = min(p_below(ours, low), p_above(ours, high))
    return PValues(supports=two_sided(p_within(ours, low, high)), opposes=two_sided(outside))


def decide_holds(ours: Estimate, c: Criterion) -> PValues:
    holds = ours.mean == 1.0
    return PValues(supports=0.0 if holds else 1.0, opposes=1.0 if holds else 0.0)


def two_sided(p: float) -> float:
    return min(1.0, 2 * p)


def number(rival: float = 0.0, runs: int | None = 1) -> Criterion:
    """Our mean agrees with the paper's figure, and could be told from the rival.

    Args:
        rival: what the paper's figure must be told from: its baseline in the same column, or zero for a gain.
        runs: runs behind the paper's figure; None means as many as ours.
    """
    return Criterion(rule="number", rival=rival, runs=runs)


def digits(decimals: int) -> Criterion:
    """A number without randomness rounds to the paper's figure."""
    return Criterion(rule="digits", decimals=decimals)


def above(target: float = 0.0) -> Criterion:
    """The mean lies above a number."""
    return Criterion(rule="above", target=target)


def below(target: float = 0.0) -> Criterion:
    """The mean lies below a number."""
    return Criterion(rule="below", target=target)


def equal(target: float, margin: float) -> Criterion:
    """The mean lies within a margin of a number."""
    return Criterion(rule="equal", target=target, margin=margin)


HOLDS = Criterion(rule="holds")  # a check without randomness holds
SHOWN = Criterion(rule="open")  # an estimate that answers an open question: no verdict

TESTS: dict[str, Callable[[Estimate, Criterion], PValues]] = {
    "above": decide_above,
    "below": decide_below,
    "equal": decide_equal,
    "holds": decide_holds,
}
VALUES: dict[str, Callable[[Estimate, Criterion], str]] = {
    "number": judge_number,
    "digits": judge_digits,
    "open": lambda ours, c: OPEN,
}
LIMITS = {
    "number": "tell figures apart that differ by {:.3g}",
    "equal": "confirm a margin of {:.3g}",
    **dict.fromkeys(("above", "below"), "show an effect of {:.3g} in four cases of five"),
}
WORDING = {
    "number": "our mean agrees with {target:g} within the noise of both, and the noise tells {target:g} from {rival:g}",
    "digits": "our number rounds to {target:g}",
    "open": "shown, not judged",
    "above": "t test: the mean lies above {target:g}",
    "below": "t test: the mean lies below {target:g}",
    "equal": "equivalence test: the mean lies within {margin:g} of {target:g}",
    "holds": "the check holds",
}
