"""Perplexity against compute and against measured time: boosted, its cheaper forms, and other standard models."""

from __future__ import annotations

from boosted_attention.chart import Figure, Panel, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._shared import (
    BOOSTED,
    PLAIN,
    STANDARD,
    describe_places,
    perplexity,
    read,
    row_label,
    short,
    text_table,
    training_trials,
)
from boosted_attention.lab.experiments.language._trials import Arm, timing_trial
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.table import Cell, Table, exactly, over_seeds
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import from_json

TITLE = "Perplexity against compute and time"
FLOPS, STEP_TIME = "training FLOPs (1e12)", "step time (standard = 1)"


def arms(preset: Preset) -> dict[str, Arm]:
    model = preset.text.configuration().model
    d, n, h = model.d_model, model.n_layers, model.n_heads
    standard, boosted = PLAIN[STANDARD], PLAIN[BOOSTED]
    wider = {f"standard, d={w}": {**standard, "d_model": w} for w in (d + 2 * h, d + 4 * h, d + 8 * h)}
    deeper = {f"standard, {n + k} layers": {**standard, "n_layers": n + k} for k in (1, 2)}
    return {
        STANDARD: standard,
        **wider,
        **deeper,
        BOOSTED: boosted,
        "boosted, shared K/V": {"attention": "boosted-shared"},
        "boosted, last half": {**boosted, "boosted_layers": f"last:{max(1, n // 2)}"},
        "boosted, one K/V head in the correction": {**boosted, "attention_options": {"n_kv_heads": [h, 1]}},
    }


def timings(preset: Preset) -> Trial:
    return timing_trial(preset, arms(preset), "pareto")


def trials(preset: Preset) -> list[Trial]:
    return [*training_trials(preset, arms(preset)), timings(preset)]


def dominated(points: dict[str, tuple[float, float]]) -> dict[str, list[str]]:
    """For each model, those that cost no more and have a lower perplexity."""
    return {
        name: [
            other
            for other, (cost, value) in points.items()
            if other != name and cost <= points[name][0] and value < points[name][1]
        ]
        for name in points
    }


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, ["test perplexity", FLOPS, STEP_TIME])
    ratios = from_json(StepRatios, results(timings(preset))).measured
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, arms(preset))
        by_flops, by_time = {}, {}
        for name, by_seed in found.items():
            one = next(iter(by_seed.values()))
            flops = 3 * one.flops_per_token * one.tokens / 1e12
            ours = over_seeds(perplexity(by_seed))
            cells = [Cell(ours), Cell(exactly(flops)), Cell(exactly(ratios[name]))]
            table.add_row(row_label(preset, corpus, name), cells)
            by_flops[name], by_time[name] = (flops, ours.mean), (ratios[name], ours.mean)
        for what, points in (("FLOPs", by_flops), ("step time", by_time)):
            beaten = {name: by for name, by in dominated(points).items() if by}
            front = [name for name in points if name not in beaten]
            text = "; ".join(f"{name} by {' and '.join(by)}" for name, by in beaten.items()) or "none"
            table.notes.append(
                f"{short(preset, corpus)}, {what}, by the means: on the front {', '.join(front)}. Dominated: {text}."
            )
    return table


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    panels = []
    for corpus in preset.text.corpora:
        for heading in (FLOPS, STEP_TIME):
            column, series = table.columns.index(heading), []
            for arm in arms(preset):
                cells = table.rows[row_label(preset, corpus, arm)]
                perplexity, cost = cells[0], cells[column]
                assert perplexity is not None
                assert cost is not None
                series.append(measured(arm, [cost.ours.mean], [perplexity.ours], "points"))
            panels.append(Panel(x_label=heading, y_label="test perplexity", series=series, title=short(preset, corpus)))
    return Figure(
        name="pareto",
        title="Perplexity against what it costs",
        caption=f"Not in the paper. {describe_places(table)}",
        panels=panels,
    )


EXPERIMENT = Experiment(
    name="lm-pareto", title=TITLE, kind=Kind.LANGUAGE, order=190, trials=trials, collect=collect, figure=figure
)
