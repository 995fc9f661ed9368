"""Compilation: a step with torch.compile against one without, at a small and a larger size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from benchmarks.bench import Bench
from benchmarks.ours import PAPER, TINY, Size, our_step, random_batch
from benchmarks.race import Race, Spread
from benchmarks.section import Section, Shown, ratio, seconds, table
from benchmarks.sections.steps import Setting

FORMS, DROPOUT = ("standard", "boosted"), 0.1
PLACES = [
    (Size(d_model=64, n_layers=4, n_heads=4, vocab_size=2048), Setting(length=128, rows=32)),
    (PAPER, Setting(length=256, rows=8)),
]
QUICK_PLACES = [(TINY, Setting(length=16, rows=2))]
TURNS = 5


@dataclass(frozen=True, kw_only=True)
class CompiledAt:
    """Steps at one size, each candidate with and without compilation."""

    size: Size
    setting: Setting
    steps: Race

    def gain(self, name: str) -> Spread:
        """Return how many times faster the compiled step is."""
        return self.steps.ratio(name, compiled(name))


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """All sizes."""

    places: list[CompiledAt]


def compiled(name: str) -> str:
    """Return the name of a candidate's compiled form."""
    return f"{name}, compiled"


def measure(bench: Bench) -> Compilation:
    """Compile while warming up, then time."""
    places, found = QUICK_PLACES if bench.quick else PLACES, []
    for i, (size, at) in enumerate(places):
        data = random_batch(size.vocab_size, at.rows, at.length)
        steps = {}
        for form in FORMS:
            config = size.config(form, at.length, DROPOUT)
            steps[form] = partial(our_step(config), *data)
            steps[compiled(form)] = partial(our_step(config, compiled=True), *data)
        race = bench.race(f"{size}, {at}", steps, TURNS, until=(i + 1) / len(places))
        found.append(CompiledAt(size=size, setting=at, steps=race))
    return Compilation(places=found)


def show(compilation: Compilation) -> Shown:
    """Make the table, and say where compilation pays."""
    rows, verdicts = [], []
    for place in compilation.places:
        for form in FORMS:
            gain = place.gain(form)
            verdict = "pays" if gain.low > 1 else "costs" if gain.high < 1 else "makes no difference"
            times = [seconds(place.steps.median(one)) for one in (form, compiled(form))]
            rows.append([f"{form}, d={place.size.d_model}, {place.setting}", *times, ratio(gain), verdict])
            verdicts.append(verdict)
    text = (
        f"A training step with dropout {DROPOUT:g}, compilation itself not counted. Compiling pays where the lower "
        f"quartile of the gain is above 1: in {verdicts.count('pays')} of {len(verdicts)} cases.\n\n"
    )
    return Shown(text=text + table(["", "time", "compiled", "compiled faster", "verdict"], rows))


COMPILED = Section(name="compile", title="Compilation", minutes=3, result=Compilation, measure=measure, show=show)
