"""How a claim is judged: five verdicts, and one rule for each kind of claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from boosted_attention.statistics import Estimate

REPRODUCED = "reproduced"
WITHIN_NOISE = "within noise"
NOT_REPRODUCED = "not reproduced"
CONTRADICTED = "contradicted"
NOT_RUN = "not run"
VERDICTS = (REPRODUCED, WITHIN_NOISE, NOT_REPRODUCED, CONTRADICTED, NOT_RUN)


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """``rule`` is a name of RULES; ``target`` and ``margin`` are its numbers."""

    rule: str
    target: float = 0.0
    margin: float = 0.0

    def judge(self, ours: Estimate) -> str:
        return RULES[self.rule](ours, self)

    def __str__(self) -> str:
        return WORDING[self.rule].format(target=self.target, margin=self.margin)


def judge_number(ours: Estimate, c: Criterion) -> str:
    if ours.n > 1 and ours.high - ours.low > max(abs(c.target), 2 * c.margin):
        return WITHIN_NOISE  # an interval as wide as the figure agrees with anything
    # The paper's figure is one run: it may be off by as much as a run of ours is, and we by two standard errors.
    if abs(ours.mean - c.target) <= 2 * ours.standard_error + ours.std + c.margin:
        return REPRODUCED
    return WITHIN_NOISE if ours.n == 1 else NOT_REPRODUCED


def judge_above(ours: Estimate, c: Criterion) -> str:
    if ours.n == 1:
        return WITHIN_NOISE
    return REPRODUCED if ours.low > c.target else CONTRADICTED if ours.high < c.target else WITHIN_NOISE


def judge_below(ours: Estimate, c: Criterion) -> str:
    if ours.n == 1:
        return WITHIN_NOISE
    return REPRODUCED if ours.high < c.target else CONTRADICTED if ours.low > c.target else WITHIN_NOISE


def judge_equal(ours: Estimate, c: Criterion) -> str:
    if ours.n == 1:
        return WITHIN_NOISE
    low, high = c.target - c.margin, c.target + c.margin
    if low <= ours.low and ours.high <= high:
        return REPRODUCED
    return CONTRADICTED if ours.high < low or ours.low > high else WITHIN_NOISE


def judge_holds(ours: Estimate, c: Criterion) -> str:
    return REPRODUCED if ours.mean == 1.0 else CONTRADICTED


def number(margin: float = 0.0) -> Criterion:
    """Our mean agrees with the quantity's own figure of the paper."""
    return Criterion(rule="number", margin=margin)


def above(target: float = 0.0) -> Criterion:
    """The whole interval lies above a number."""
    return Criterion(rule="above", target=target)


def below(target: float = 0.0) -> Criterion:
    """The whole interval lies below a number."""
    return Criterion(rule="below", target=target)


def equal(target: float, margin: float) -> Criterion:
    """The whole interval lies within a margin of a number."""
    return Criterion(rule="equal", target=target, margin=margin)


HOLDS = Criterion(rule="holds")  # a check without randomness holds

RULES: dict[str, Callable[[Estimate, Criterion], str]] = {
    "number": judge_number,
    "above": judge_above,
    "below": judge_below,
    "equal": judge_equal,
    "holds": judge_holds,
}
WORDING = {
    "number": "our mean within two standard errors, one run's noise and {margin:g} of {target:g} (within noise where "
    "the interval is wider than the figure)",
    "above": "the whole interval above {target:g} (wholly below: contradicted; astride: within noise)",
    "below": "the whole interval below {target:g} (wholly above: contradicted; astride: within noise)",
    "equal": "the whole interval within {margin:g} of {target:g} (wholly outside: contradicted; astride: within noise)",
    "holds": "the check holds",
}
