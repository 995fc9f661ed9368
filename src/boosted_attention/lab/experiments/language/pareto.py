"""Perplexity against compute and against measured time: boosted, its cheaper forms, related layers, and widths."""

from __future__ import annotations

from boosted_attention.chart import Figure, Panel, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import (
    BOOSTED,
    DEEPER,
    DIFFERENTIAL,
    EQUAL_FLOPS,
    FAIR,
    GATED,
    PARALLEL,
    PLAIN,
    SHARED,
    STANDARD,
    TWICING,
    WIDE,
    Arm,
    all_arms,
    name_of,
    seeds_of,
)
from boosted_attention.lab.experiments.language._shared import (
    describe_places,
    describe_times,
    described,
    note_diverged,
    on_first_text,
    perplexity,
    read,
    row_label,
    short,
    text_table,
    training_trials,
)
from boosted_attention.lab.experiments.language._trials import timing_trial
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.table import Cell, Table, exactly, over_seeds
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import from_json
from boosted_attention.statistics import Estimate

TITLE = "Perplexity against compute and time"
FLOPS, STEP_TIME = "training FLOPs (1e12)", "step time (standard = 1)"
WIDTH_CURVE = "standard, by width"


def widths(preset: Preset) -> dict[str, Arm]:
    """Standard models by width: the line to beat, since width can be bought in any amount."""
    model, known = preset.text.configuration().model, all_arms(preset)
    d, h = model.d_model, model.n_heads
    wider = {f"standard, d={w}": {**PLAIN[STANDARD], "d_model": w} for w in (d + 2 * h, d + 4 * h, d + 8 * h)}
    named = {name: known[name] for name in (STANDARD, FAIR, EQUAL_FLOPS, WIDE)}
    return {**named, **{name: arm for name, arm in wider.items() if name_of(preset, arm) is None}}


def candidates(preset: Preset) -> dict[str, Arm]:
    model, known = preset.text.configuration().model, all_arms(preset)
    n, h, boosted = model.n_layers, model.n_heads, PLAIN[BOOSTED]
    return {
        **widths(preset),
        DEEPER: known[DEEPER],
        f"standard, {n + 2} layers": {**PLAIN[STANDARD], "n_layers": n + 2},
        BOOSTED: boosted,
        **{name: known[name] for name in (SHARED, PARALLEL, TWICING, DIFFERENTIAL, GATED)},
        "boosted, last half": {**boosted, "boosted_layers": f"last:{max(1, n // 2)}"},
        "boosted, one K/V head in the correction": {**boosted, "attention_options": {"n_kv_heads": [h, 1]}},
    }


def arms(preset: Preset) -> dict[str, Arm]:
    """The models that the preset trains."""
    first = preset.text.corpora[0]
    return {name: arm for name, arm in candidates(preset).items() if seeds_of(preset, first, arm)}


def timings(preset: Preset) -> Trial:
    return timing_trial(preset, arms(preset), "pareto")


def trials(preset: Preset) -> list[Trial]:
    return [*training_trials(preset, arms(preset)), timings(preset)]


def needed(preset: Preset) -> list[Trial]:
    """The step times, and the trainings on the first text."""
    return [*on_first_text(lambda own: training_trials(own, arms(own)))(preset), timings(preset)]


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
    table.notes += describe_times(results, timings(preset))
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, arms(preset))
        table.notes += described(preset, corpus, found, arms(preset))
        note_diverged(table, preset, corpus, found)
        by_flops, by_time = {}, {}
        common = [seed for seed in preset.text.seeds if all(seed in by_seed for by_seed in found.values())]
        for name, by_seed in found.items():
            one = next(iter(by_seed.values()))
            flops = 3 * one.flops_per_token * one.tokens / 1e12
            ours = over_seeds({seed: perplexity(by_seed)[seed] for seed in common})
            cells = [Cell(ours), Cell(exactly(flops)), Cell(exactly(ratios[name]))]
            table.add_row(row_label(preset, corpus, name), cells)
            by_flops[name], by_time[name] = (flops, ours.mean), (ratios[name], ours.mean)
        for what, points in (("FLOPs", by_flops), ("step time", by_time)) if found else ():
            beaten = {name: by for name, by in dominated(points).items() if by}
            front = [name for name in points if name not in beaten]
            text = "; ".join(f"{name} by {' and '.join(by)}" for name, by in beaten.items()) or "none"
            table.notes.append(
                f"{short(preset, corpus)}, {what}, by the means: on the front {', '.join(front)}. Dominated: {text}."
            )
        if found:
            table.notes.append(
                f"{short(preset, corpus)}: perplexities are over the seeds that all models of the table have: "
                f"{', '.join(map(str, common))}."
            )
    return table


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    panels = []
    for corpus in preset.text.corpora:
        shown = {
            arm: row for arm in arms(preset) if (row := table.rows.get(row_label(preset, corpus, arm))) is not None
        }
        for heading in (FLOPS, STEP_TIME) if shown else ():
            column = table.columns.index(heading)
            points = {arm: (mean_of(row[column]), estimate_of(row[0])) for arm, row in shown.items()}
            line = sorted((points[arm] for arm in widths(preset) if arm in points), key=lambda point: point[0])
            if len(line) < 2:
                continue  # no line to beat
            series = [measured(WIDTH_CURVE, [cost for cost, _ in line], [e for _, e in line])]
            series += [
                measured(arm, [cost], [e], "points") for arm, (cost, e) in points.items() if arm not in widths(preset)
            ]
            panels.append(Panel(x_label=heading, y_label="test perplexity", series=series, title=short(preset, corpus)))
    return Figure(
        name="pareto",
        title="Perplexity against what it costs",
        caption=f"Not in the paper. The line is the standard model by width, which a form of attention has to beat. "
        f"{describe_places(table)}",
        panels=panels,
    )


def estimate_of(cell: Cell | None) -> Estimate:
    assert cell is not None
    return cell.ours


def mean_of(cell: Cell | None) -> float:
    return estimate_of(cell).mean


EXPERIMENT = Experiment(
    name="lm-pareto",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=190,
    trials=trials,
    collect=collect,
    figure=figure,
    needed=needed,
)
