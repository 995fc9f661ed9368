"""A control the paper lacks: accuracy is a weak metric. The raw query already decodes to MAP."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import MAIN, UNTRAINED, baseline_run, boosted, by_seed, task, training_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, exact, exactly, render, trained

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Accuracy (%) against squared error"


SIZES = ((16, 4), (32, 8), (64, 16))
DRAWS = range(43, 51)  # other sets of patterns than the paper's


def draw_runs(preset: Preset, d: int, k: int) -> list[Run]:
    return [baseline_run(preset, {**task(d, k, 0.5), "pattern_seed": seed}) for seed in DRAWS]


def runs(preset: Preset) -> list[Run]:
    other = [run for size in SIZES for run in draw_runs(preset, *size)]
    return [baseline_run(preset, MAIN), *(training_run(preset, MAIN, boosted(m)) for m in (1, 2)), *other]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, ["accuracy", "squared error"], precision=3)
    baselines = results(baseline_run(preset, MAIN))
    for label, key in UNTRAINED.items():
        table.add_row(label, [exact(baselines[key][metric]) for metric in ("accuracy", "mse")])
    for m in (1, 2):
        found = results(training_run(preset, MAIN, boosted(m)))
        table.add_row(f"M={m}", [trained(by_seed(found, metric)) for metric in ("accuracy", "mse")])
    for d, k in SIZES:
        found = [results(run)["bayes"] for run in draw_runs(preset, d, k)]
        cells = [trained(dict(enumerate(draw[metric] for draw in found))) for metric in ("accuracy", "mse")]
        table.add_row(f"Bayes over {len(DRAWS)} other sets of patterns, d={d} K={k}", cells)
    for metric in ("accuracy", "mse"):
        table.quantities[f"Bayes - MAP, {metric}"] = exactly(baselines["bayes"][metric] - baselines["map"][metric])
        table.quantities[f"raw - MAP, {metric}"] = exactly(baselines["raw"][metric] - baselines["map"][metric])
    return table
