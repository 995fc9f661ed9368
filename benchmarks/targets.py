"""What the benchmarks must show: limits, what was measured against them, and whether they are reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.peers import GPT2, PEERS
from benchmarks.results import Results
from benchmarks.sections.data import DATA, Data
from benchmarks.sections.decoding import DECODING, Decoding
from benchmarks.sections.halting import HALTING, Halting
from benchmarks.sections.imports import IMPORTS, MODEL, PACKAGE, Imports
from benchmarks.sections.memory import MEMORY, Memory
from benchmarks.sections.pretrained_decoding import (
    LAST,
    LORA,
    ORIGINAL,
    PRETRAINED_DECODING,
    SHARED,
    PretrainedDecoding,
)
from benchmarks.sections.steps import DROPOUTS, STEPS, Steps, StepsAt, plain

FAIR = 0.05  # share by which the plain model may differ from GPT-2


@dataclass(frozen=True, kw_only=True)
class Target:
    """A limit and what was measured; of several cases the one that is farthest from it."""

    what: str
    limit: float
    at_most: bool = False
    measured: float
    case: str = ""
    unit: str = "x"  # or "%", in which both numbers are shares

    @property
    def reached(self) -> bool:
        """Whether the limit is kept."""
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit

    def written(self, value: float, digits: int) -> str:
        """Write a number in the target's unit."""
        return f"{100 * value:.{max(0, digits - 2)}f} %" if self.unit == "%" else f"{value:.{digits}f}x"


def worst(what: str, limit: float, cases: Mapping[str, float], *, at_most: bool = False, unit: str = "x") -> Target:
    """Return the target of the case that is farthest from the limit."""
    case = max(cases, key=lambda name: cases[name] if at_most else -cases[name])
    return Target(what=what, limit=limit, at_most=at_most, measured=cases[case], case=case, unit=unit)


def targets(results: Results) -> list[Target]:
    """Return the targets of all sections that have been measured."""
    found: list[Target] = []
    for section, judge in (
        (STEPS, of_steps),
        (MEMORY, of_memory),
        (DECODING, of_decoding),
        (HALTING, of_halting),
        (DATA, of_data),
        (IMPORTS, of_imports),
        (PRETRAINED_DECODING, of_pretrained_decoding),
    ):
        result = results.of(section)
        if result is not None:
            found += judge(result)
    return found


def of_steps(steps: Steps) -> Iterator[Target]:
    """Judge training steps, in the shorter and the longer setting."""
    short, long = steps.settings
    for at, limits in ((short, (1.3, 1.2)), (long, (2.0, 1.8))):
        for p, limit in zip(DROPOUTS, limits, strict=True):
            faster = at.ours_against(plain("boosted"), "boosted", p).median
            what = f"boosted step against the plain model, T={at.setting.length}, dropout {p:g}"
            yield Target(what=what, limit=limit, measured=faster)
    for at, limit in ((short, 1.12), (long, 1.25)):
        cases = {name: spread.median for name, spread in at.dropouts().items()}
        what = f"every layer that takes dropout, 0.1 against its own step at 0, T={at.setting.length}"
        yield worst(what, limit, cases, at_most=True)
    for group, peers in (("GPT-2", tuple(GPT2)), ("x-transformers", tuple(set(PEERS) - set(GPT2)))):
        cases = {
            f"{peer}, T={at.setting.length}, dropout {p:g}": at.ours_against(peer, "standard", p).median
            for at in steps.settings
            for peer in peers
            for p in DROPOUTS
        }
        yield worst(f"standard step against {group}, both dropouts and lengths", 1.0, cases)
    shares = {f"T={at.setting.length}": at.share("boosted", 0.0).median for at in steps.settings}
    yield worst("share of the matrix-multiply rate, boosted, dropout 0, both lengths", 0.72, shares, unit="%")
    prices = {f"T={at.setting.length}": at.price("boosted", 0.1).median for at in steps.settings}
    yield worst("boosted over standard divided by the FLOP ratio, training, dropout 0.1", 1.05, prices, at_most=True)


def of_memory(memory: Memory) -> Iterator[Target]:
    """Judge the largest setting."""
    largest = max(memory.peaks, key=lambda peak: peak.setting.length * peak.setting.rows)
    what = f"peak memory of a boosted step against the plain model, dropout 0.1, {largest.setting}"
    yield Target(what=what, limit=0.4, at_most=True, measured=largest.ratio)


def of_decoding(decoding: Decoding) -> Iterator[Target]:
    """Judge decoding at every context and batch, and against the bound."""
    prices = {f"batch {p.batch}, context {p.context}": p.price("boosted").median for p in decoding.points}
    what = "boosted over standard divided by the FLOP ratio, cached decoding"
    yield worst(what, 1.15, prices, at_most=True)
    what = f"decoding of standard, context {decoding.points[0].context}, against a matrix-vector product, from memory"
    yield Target(what=what, limit=1.5, at_most=True, measured=decoding.from_memory.over_bound().median)


def of_halting(halting: Halting) -> Iterator[Target]:
    """Judge decoding where every token stops after one round; the limit, set once 0.59 was reached, guards it."""
    cases = {f"batch {point.batch}": point.share(1).median for point in halting.points}
    yield worst("cached decoding of tokens that take one round of six, against all six", 0.7, cases, at_most=True)


def of_data(data: Data) -> Iterator[Target]:
    """Judge the speed of encoding."""
    yield Target(what="speed of encoding against bare `tokenizers`", limit=0.9, measured=data.speed().median)


def of_imports(imports: Imports) -> Iterator[Target]:
    """Judge new processes."""
    cases = {
        "alone": imports.beyond_torch(PACKAGE).median,
        "with its LanguageModel": imports.beyond_torch(MODEL).median,
    }
    yield worst("`import boosted_attention` beyond `import torch`", 0.15, cases, at_most=True)
    what = "`boosted-attention --help` against `import torch`"
    yield Target(what=what, limit=0.5, at_most=True, measured=imports.help_against_torch().median)


def of_pretrained_decoding(decoding: PretrainedDecoding) -> Iterator[Target]:
    """Judge light corrections of a pretrained model, in all layers and in the last third."""
    what = f"speed of cached decoding, {SHARED}, against LoRA that is not merged"
    yield Target(what=what, limit=1.0, measured=decoding.speed(SHARED, LORA).median)
    what = f"speed of cached decoding, {LAST}, against the original"
    yield Target(what=what, limit=0.85, measured=decoding.speed(LAST, ORIGINAL).median)


def fairness(at: StepsAt) -> list[Target]:
    """Say whether the plain model is a fair rival: its standard form takes as long as GPT-2 with eager attention."""
    eager = next(iter(GPT2))
    found = []
    for p in DROPOUTS:
        times = at.ours_against(plain("standard"), "standard", p), at.ours_against(eager, "standard", p)
        apart = abs(times[0].median / times[1].median - 1)
        what = f"plain standard step from GPT-2's with eager attention, T={at.setting.length}, dropout {p:g}"
        found.append(Target(what=what, limit=FAIR, at_most=True, measured=apart, unit="%"))
    return found
