"""Table 2: iterating attention on the retrieval task, six configurations."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import ONE_STEP, SIX, UNTRAINED, baseline_run, by_seed, task, training_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, exact, render, trained

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Retrieval accuracy (%): one step, and iterated to convergence (Table 2)"
TRAINED = {
    "one-step": ONE_STEP,
    "converged, unrolled": {"family": "unrolled"},
    "converged, implicit": {"family": "implicit"},
    "converged, implicit, query injected": {"family": "implicit-injected"},
}
PAPER = {
    "chance": [25.0, 25.0, 12.5, 12.5, 6.3, 6.3],
    "Bayes": [80.7, 61.9, 68.8, 45.3, 58.1, 32.6],
    "one-step": [71.1, 55.0, 53.1, 36.4, 46.5, 26.1],
    "converged, unrolled": [25.2, 25.2, 12.1, 12.1, 6.7, 6.7],
    "converged, implicit": [25.2, 25.2, 12.1, 12.1, 6.7, 6.7],
}


def column(d: int, k: int, sigma: float) -> str:
    return f"d={d} K={k} sigma={sigma}"


def runs(preset: Preset) -> list[Run]:
    return [
        run
        for configuration in SIX
        for run in (
            baseline_run(preset, task(*configuration)),
            *(training_run(preset, task(*configuration), model) for model in TRAINED.values()),
        )
    ]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [column(*c) for c in SIX])
    paper = {label: PAPER.get(label, [None] * 6) for label in (*UNTRAINED, *TRAINED)}
    for label, key in UNTRAINED.items():
        values = [results(baseline_run(preset, task(*c)))[key]["accuracy"] for c in SIX]
        table.add_row(label, [exact(value, p) for value, p in zip(values, paper[label], strict=True)])
    scores = {
        (label, c): by_seed(results(training_run(preset, task(*c), model)), "accuracy")
        for label, model in TRAINED.items()
        for c in SIX
    }
    for label in TRAINED:
        table.add_row(label, [trained(scores[label, c], p) for c, p in zip(SIX, paper[label], strict=True)])
    pairs = []
    for c in SIX:
        where, one, unrolled = column(*c), scores["one-step", c], scores["converged, unrolled", c]
        implicit, injected = scores["converged, implicit", c], scores["converged, implicit, query injected", c]
        chance = dict.fromkeys(one, 100 / c[1])
        pairs += [
            (f"converged, unrolled - chance | {where}", unrolled, chance, None),
            (f"converged, implicit - chance | {where}", implicit, chance, None),
            (f"implicit - unrolled | {where}", implicit, unrolled, 0.0),
            (f"one-step - converged | {where}", one, unrolled, None),
            (f"query injected - one-step | {where}", injected, one, None),
        ]
    table.compare(pairs)
    return table
