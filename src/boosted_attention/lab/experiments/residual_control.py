"""A control the paper lacks: does a correction need the residual, or just a second attention?"""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import MAIN, boosted, by_seed, training_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, render, trained

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "What later rounds look at: accuracy (%)"
ROUNDS = (2, 3)
RULES = {"residual x - F": {}, "input x (parallel)": {"residual": "input"}, "estimate F": {"residual": "estimate"}}


def runs(preset: Preset) -> list[Run]:
    return [training_run(preset, MAIN, boosted(m, **rule)) for rule in RULES.values() for m in ROUNDS]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [f"M={m}" for m in ROUNDS], precision=2)
    accuracy = {}
    for label, rule in RULES.items():
        for m in ROUNDS:
            accuracy[label, m] = by_seed(results(training_run(preset, MAIN, boosted(m, **rule))), "accuracy")
        table.add_row(label, [trained(accuracy[label, m]) for m in ROUNDS])
    first = "residual x - F"
    table.compare(
        [
            (f"residual - {label}, M={m}", accuracy[first, m], accuracy[label, m], None)
            for label in RULES
            for m in ROUNDS
            if label != first
        ]
    )
    return table
