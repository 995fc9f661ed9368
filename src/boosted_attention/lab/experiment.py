"""An experiment: everything about one table of the paper, or one control of ours, in one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from boosted_attention.chart import Figure
from boosted_attention.lab.judging.claim import Claim
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

Results = Callable[[Trial], Any]  # a trial's result, as JSON; KeyError if it is not there
Took = Callable[[Trial], float]  # a trial's seconds of the processor; KeyError if they are not known


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What a file of ``experiments/`` offers, under the name EXPERIMENT.

    Args:
        name: as it is asked for.
        title: heading of its table.
        kind: what it is about.
        order: place among all experiments, where they are listed.
        trials: everything to be computed for a preset; trials that another experiment has too are done once.
        collect: makes the table from the trials' results, with every quantity that a claim asks for.
        claims: what its table decides.
        figure: draws it, from preset, table and results.
        needed: the trials it cannot do without, where a table of some of them makes sense; ``collect`` then leaves out
            what is not there.
        costs: notes on what the trials took, where that belongs to the finding.
        by_default: whether ``reproduce`` does it unasked.
    """

    name: str
    title: str
    kind: Kind
    order: int
    trials: Callable[[Preset], list[Trial]]
    collect: Callable[[Preset, Results], Table]
    claims: Sequence[Claim] = ()
    figure: Callable[[Preset, Table, Results], Figure] | None = None
    needed: Callable[[Preset], list[Trial]] | None = None
    costs: Callable[[Preset, Results, Took], list[str]] | None = None
    by_default: bool = False

    def __post_init__(self) -> None:
        own = [replace(c, experiment=self.name, kind=self.kind) for c in self.claims]
        object.__setattr__(self, "claims", tuple(own))

    def table(self, preset: Preset, results: Results, took: Took | None = None) -> Table:
        """Collect the table, with its place where no text makes one, and with costs where these are known."""
        table = self.collect(preset, results)
        if self.costs is not None and took is not None:
            table.notes += self.costs(preset, results, took)
        if not table.places:
            table.places[""] = Place(kind=self.kind, is_the_papers=self.kind is Kind.THEORY or preset.has_papers_steps)
        return table

    def required(self, preset: Preset) -> list[Trial]:
        """The trials without which there is no table."""
        return (self.needed or self.trials)(preset)
