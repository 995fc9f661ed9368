"""A control the paper lacks: accuracy is a weak metric. The raw query already decodes to MAP."""

from __future__ import annotations

from collections.abc import Callable

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.retrieval._shared import (
    MAIN,
    SIX,
    UNTRAINED,
    accuracy,
    baseline_trial,
    baselines,
    boosted,
    squared_error,
    task,
    trained_models,
    training_trial,
)
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Table, exactly, over_seeds
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.retrieval.task import Score
from boosted_attention.statistics import estimate

TITLE = "Accuracy (%) against squared error"
METRICS: dict[str, Callable[[Score], float]] = {"accuracy": lambda s: s.accuracy, "mse": lambda s: s.mse}
SIZES = tuple(dict.fromkeys((d, k) for d, k, _ in SIX))
DRAWS = range(43, 51)  # other sets of patterns than the paper's
RIVALS = ("Bayes", "raw query")
OVER_MAP = {(rival, metric): Quantity(f"{rival} - MAP, {metric}") for metric in METRICS for rival in RIVALS}


def draw_trials(preset: Preset, d: int, k: int) -> list[Trial]:
    return [baseline_trial(preset, {**task(d, k, 0.5), "pattern_seed": seed}) for seed in DRAWS]


def trials(preset: Preset) -> list[Trial]:
    other = [trial for size in SIZES for trial in draw_trials(preset, *size)]
    return [baseline_trial(preset, MAIN), *(training_trial(preset, MAIN, boosted(m)) for m in (1, 2)), *other]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, ["accuracy", "squared error"], precision=3)
    predictors = baselines(results, baseline_trial(preset, MAIN))
    untrained = {label: score(predictors) for label, score in UNTRAINED.items()}
    for label, score in untrained.items():
        table.add_row(label, [Cell(exactly(metric(score))) for metric in METRICS.values()])
    for m in (1, 2):
        found = trained_models(results, training_trial(preset, MAIN, boosted(m)))
        table.add_row(f"M={m}", [Cell(over_seeds(accuracy(found))), Cell(over_seeds(squared_error(found)))])
    for d, k in SIZES:
        draws = [baselines(results, trial).bayes for trial in draw_trials(preset, d, k)]
        cells = [Cell(estimate([metric(draw) for draw in draws])) for metric in METRICS.values()]
        table.add_row(f"Bayes over {len(DRAWS)} other sets of patterns, d={d} K={k}", cells)
    for (rival, name), quantity in OVER_MAP.items():
        metric = METRICS[name]
        table.quantities[quantity] = exactly(metric(untrained[rival]) - metric(untrained["MAP"]))
    return table


EXPERIMENT = Experiment(
    name="metric", title=TITLE, kind=Kind.SYNTHETIC, order=100, trials=trials, collect=collect, by_default=True
)
