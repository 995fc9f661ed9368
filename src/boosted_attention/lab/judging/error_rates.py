"""Error rates of the rules, simulated: how often a verdict is wrong when the truth is known.

All in units of one seed's deviation. Families are drawn at their worst: where a fact needs all its parts, all but one
hold, and where one part is enough, none does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from boosted_attention.lab.judging.judge import decide, fact_verdict
from boosted_attention.lab.judging.verdicts import (
    CONTRADICTED,
    NOT_REPRODUCED,
    REPRODUCED,
    Criterion,
    above,
    equal,
    number,
)
from boosted_attention.statistics import Estimate

DRAWS = 2_000  # families of a cell
NUMBERS = 10_000  # numbers of a cell
SEEDS = (3, 5, 8, 10)
FAMILIES = (1, 3, 6)
MARGIN = 1.0  # of equivalences
EFFECT = 3.0  # of parts that hold
FIGURES = (3.0, 10.0)  # the paper's, away from its rival
OUTLIER = 4.0  # how far the outlying seed lies off

Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape)


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_t(4, shape) / np.sqrt(2.0)  # of unit variance


def outlying(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    values = rng.standard_normal(shape)
    values[..., 0] += OUTLIER * rng.choice((-1.0, 1.0), shape[:-1])
    return values


NOISES: dict[str, Noise] = {"normal": normal, "t(4)": heavy, "one outlier": outlying}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A truth, and the verdict that is counted under it.

    Args:
        truth: the truth in words.
        verdict: what is counted.
        criterion: the rule of every part.
        first: true value of the first part.
        others: true value of the other parts.
        needs_all: whether the fact needs all its parts.
        one_by_one: whether each is judged by itself after the correction, as controls are, and one verdict is enough.
    """

    truth: str
    verdict: str
    criterion: Criterion
    first: float
    others: float
    needs_all: bool = True
    one_by_one: bool = False


POSITIVE, ALIKE = above(0.0), equal(0.0, MARGIN)
CASES = (
    Case(truth="one difference is zero", verdict=REPRODUCED, criterion=POSITIVE, first=0.0, others=EFFECT),
    Case(truth="one difference is -1", verdict=REPRODUCED, criterion=POSITIVE, first=-1.0, others=EFFECT),
    Case(truth="one equivalence is at its margin", verdict=REPRODUCED, criterion=ALIKE, first=MARGIN, others=0.0),
    Case(
        truth="all differences are zero, one part is enough",
        verdict=REPRODUCED,
        criterion=POSITIVE,
        first=0.0,
        others=0.0,
        needs_all=False,
    ),
    Case(truth="all differences are 1", verdict=CONTRADICTED, criterion=POSITIVE, first=1.0, others=1.0),
    Case(
        truth="all differences are barely above zero", verdict=CONTRADICTED, criterion=POSITIVE, first=0.0, others=0.0
    ),
    Case(
        truth="all equivalences are at their margin", verdict=CONTRADICTED, criterion=ALIKE, first=MARGIN, others=MARGIN
    ),
    Case(
        truth="all differences are barely above zero, one part is enough",
        verdict=CONTRADICTED,
        criterion=POSITIVE,
        first=0.0,
        others=0.0,
        needs_all=False,
    ),
    *(
        Case(
            truth=f"any control, all differences are {zero}",
            verdict=verdict,
            criterion=POSITIVE,
            first=0.0,
            others=0.0,
            needs_all=False,
            one_by_one=True,
        )
        for verdict, zero in ((REPRODUCED, "zero"), (CONTRADICTED, "barely above zero"))
    ),
)


def estimates(values: np.ndarray) -> list[Estimate]:
    """Make an estimate of each row (rows, seeds); interval and p value are not needed by the rules."""
    means, stds, n = values.mean(axis=-1), values.std(axis=-1, ddof=1), values.shape[-1]
    return [Estimate(mean=m, low=m, high=m, std=s, n=n) for m, s in zip(means.tolist(), stds.tolist(), strict=True)]


def family_rate(case: Case, noise: Noise, size: int, seeds: int, draws: int = DRAWS) -> float:
    """Share of families in which the fact, or any control, gets the verdict of the case.

    Args:
        case: truth, rule and verdict.
        noise: draws the seeds' deviations.
        size: parts of the family.
        seeds: seeds per part.
        draws: families drawn.
    """
    values = noise(np.random.default_rng([size, seeds]), (draws, size, seeds)) + case.others
    values[:, 0] += case.first - case.others
    tests = [case.criterion.test(e) for e in estimates(values.reshape(draws * size, seeds))]
    known = [p for p in tests if p is not None]
    hits = 0
    for i in range(0, draws * size, size):
        verdicts = decide(known[i : i + size], alone=case.needs_all)
        if case.one_by_one:
            hits += case.verdict in verdicts
        else:
            hits += fact_verdict(verdicts, case.needs_all) == case.verdict
    return hits / draws


def number_rate(judged: Sequence[str], verdict: str, size: int = 1) -> float:
    """Share of families of numbers, each judged by itself, in which any one gets a verdict."""
    families = [judged[i : i + size] for i in range(0, len(judged) - size + 1, size)]
    return sum(verdict in family for family in families) / len(families)


def judged_numbers(verdict: str, effect: float, noise: Noise, seeds: int, runs: int, draws: int = NUMBERS) -> list[str]:
    """The verdicts on independent numbers where one of them would be wrong.

    Args:
        verdict: "reproduced", where the truth is the rival; or "not reproduced", where it is the paper's.
        effect: distance of the paper's figure from its rival, which is zero.
        noise: draws the seeds' deviations; the paper's runs have no outlier.
        seeds: seeds behind our mean.
        runs: runs behind the paper's figure.
        draws: numbers drawn.
    """
    rng = np.random.default_rng([seeds, runs])
    is_papers = verdict == NOT_REPRODUCED
    ours = estimates(noise(rng, (draws, seeds)) + (effect if is_papers else 0.0))
    theirs = (normal if noise is outlying else noise)(rng, (draws, runs)).mean(axis=1)
    figures = effect + theirs if is_papers else np.full(draws, effect)
    return [
        replace(number(runs=runs), target=figure).judge(e) for figure, e in zip(figures.tolist(), ours, strict=True)
    ]


def rows() -> Iterator[tuple[str, list[float]]]:
    """Yield every line of the table: what is wrong under which truth, and its rate for each number of seeds."""
    for verdict, truth in ((REPRODUCED, "the number is its rival"), (NOT_REPRODUCED, "the number is the paper's")):
        for effect in FIGURES:
            for runs in (1, 2):
                for name, noise in NOISES.items():
                    where = f"{effect:g} apart, {runs} run{'s' * (runs > 1)} of the paper's"
                    judged = [judged_numbers(verdict, effect, noise, n, runs) for n in SEEDS]
                    for size in FAMILIES:
                        rates = [number_rate(own, verdict, size) for own in judged]
                        yield f"{verdict} | {truth}, {where} | {size} | {name}", rates
    for case in CASES:
        for size in FAMILIES:
            for name, noise in NOISES.items():
                rates = [family_rate(case, noise, size, n) for n in SEEDS]
                yield f"{case.verdict} | {case.truth} | {size} | {name}", rates


def power_rows() -> Iterator[tuple[str, list[float]]]:
    """Yield how often a fact is reproduced whose parts all have a true effect."""
    for effect in (1.0, 2.0, 3.0):
        case = Case(truth="", verdict=REPRODUCED, criterion=POSITIVE, first=effect, others=effect)
        for size in FAMILIES:
            rates = [family_rate(case, normal, size, n) for n in SEEDS]
            yield f"{REPRODUCED} | all differences are {effect:g} | {size} | normal", rates


@cache
def error_rates() -> str:
    """The tables of error rates and of power, as Markdown."""

    def table(lines: Iterator[tuple[str, list[float]]], decimals: int) -> list[str]:
        head = "| verdict | truth | parts | noise | " + " | ".join(f"{n} seeds" for n in SEEDS) + " |"
        shown = [
            f"| {label} | " + " | ".join(f"{100 * r:.{decimals}f} %" for r in rates) + " |" for label, rates in lines
        ]
        return [head, "|---" * (4 + len(SEEDS)) + "|", *shown]

    return "\n".join(["Wrong verdicts:\n", *table(rows(), 1), "\nRight ones:\n", *table(power_rows(), 0), ""])
