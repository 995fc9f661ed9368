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
    rules = [training_run(preset, MAIN, boosted(m, **rule)) for rule in RULES.values() for m in ROUNDS]
    return [training_run(preset, MAIN, boosted(1)), *rules]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [f"M={m}" for m in ROUNDS], precision=2)
    accuracy = {}
    for label, rule in RULES.items():
        for m in ROUNDS:
            accuracy[label, m] = by_seed(results(training_run(preset, MAIN, boosted(m, **rule))), "accuracy")
        table.add_row(label, [trained(accuracy[label, m]) for m in ROUNDS])
    first, parallel = "residual x - F", "input x (parallel)"
    others = [label for label in RULES if label != first]
    pairs = [
        (f"residual - {label}, M={m}", accuracy[first, m], accuracy[label, m], None) for label in others for m in ROUNDS
    ]
    one = by_seed(results(training_run(preset, MAIN, boosted(1))), "accuracy")
    for m in ROUNDS:
        half = {seed: (value + one[seed]) / 2 for seed, value in accuracy[first, m].items()}
        pairs.append((f"half the gain - parallel's gain, M={m}", half, accuracy[parallel, m], None))
    table.compare(pairs)
    return table
