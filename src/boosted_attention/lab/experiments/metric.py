"""A control the paper lacks: accuracy is a weak metric. The raw query already decodes to MAP."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import MAIN, baseline_run, boosted, by_seed, training_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, exact, exactly, render, trained

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Accuracy (%) against squared error"
UNTRAINED = {"chance": "chance", "raw query": "raw", "MAP": "map", "Bayes": "bayes"}


def runs(preset: Preset) -> list[Run]:
    return [baseline_run(preset, MAIN), *(training_run(preset, MAIN, boosted(m)) for m in (1, 2))]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, ["accuracy", "squared error"], precision=3)
    baselines = results(baseline_run(preset, MAIN))
    for label, key in UNTRAINED.items():
        table.add_row(label, [exact(baselines[key][metric]) for metric in ("accuracy", "mse")])
    for m in (1, 2):
        found = results(training_run(preset, MAIN, boosted(m)))
        table.add_row(f"M={m}", [trained(by_seed(found, metric)) for metric in ("accuracy", "mse")])
    for metric in ("accuracy", "mse"):
        table.quantities[f"Bayes - MAP, {metric}"] = exactly(baselines["bayes"][metric] - baselines["map"][metric])
        table.quantities[f"raw - MAP, {metric}"] = exactly(baselines["raw"][metric] - baselines["map"][metric])
    return table
