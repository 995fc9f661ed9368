"""Learning rates: every arm at its own best, found on validation text with a seed that no table uses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from boosted_attention.chart import Figure, Panel, Series
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments._grid import CLOSE, Points, best_factor, is_inside
from boosted_attention.lab.experiments.language._arms import BOOSTED, STANDARD, TUNED, Arm, all_arms
from boosted_attention.lab.experiments.language._shared import describe_places, located, places, row_label, short
from boosted_attention.lab.experiments.language._trials import sweep_trial
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Table, cell, exactly
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import SweepPoint
from boosted_attention.records import from_json

TITLE = "Validation perplexity by learning rate: factors on all rates of the recipe"
FELL_APART = 2.0  # times the lowest perplexity of a sweep
STEP = 2.0  # between neighbours of a grid that is extended
CHOSEN = {name: Quantity(f"best factor, {name}") for name in TUNED}
AT_BEST = {name: Quantity(f"boosted - {name}, each at its best rate") for name in TUNED if name != BOOSTED}
OF_BOOSTED = ("boosted against it (%)", "at the standard model's rate (%)")
AT_SHARED = {name: Quantity(f"boosted - {name}, both at the standard model's rate") for name in AT_BEST}


def arms(preset: Preset) -> dict[str, Arm]:
    """The arms whose rate is tuned; at a further size, those that are trained there."""
    known = all_arms(preset)
    return {name: known[name] for name in TUNED if not preset.text.arms or name in preset.text.arms}


def texts(preset: Preset) -> tuple[str, ...]:
    """The texts that rates are tuned on: the first alone, where arms train at the rates found."""
    return preset.text.corpora[:1] if preset.text.tuned else preset.text.corpora


def grid(preset: Preset, name: str) -> tuple[float, ...]:
    """The factors that are tried for an arm: the preset's, and those by which results made it longer."""
    return tuple(preset.text.decided.grids.get(preset.text.recipe, {}).get(name, preset.text.rates))


def trials(preset: Preset) -> list[Trial]:
    return [
        sweep_trial(preset, corpus, arm, name, factor)
        for corpus in texts(preset)
        for name, arm in arms(preset).items()
        for factor in grid(preset, name)
    ]


def finished(preset: Preset) -> list[str]:
    """The arms whose sweep is complete, so that their rate is decided; none where no arm is tuned."""
    return [name for name in arms(preset) if name in preset.text.decided.rates.get(preset.text.recipe, {})]


def at_edge(preset: Preset, results: Results) -> list[str]:
    """The arms whose complete sweep has its best at an edge of the grid: a better rate may lie beyond it."""
    first = preset.text.corpora[0]
    return [name for name in finished(preset) if not is_inside(points_of(preset, results, first, name))]


def points_of(preset: Preset, results: Results, corpus: str, name: str) -> dict[float, float | None]:
    """The sweep of one arm on one corpus."""
    return points_at(preset, results, corpus, name, grid(preset, name))


def points_at(
    preset: Preset, results: Results, corpus: str, name: str, factors: Sequence[float]
) -> dict[float, float | None]:
    """Points of one arm's sweep; KeyError if one is not there."""
    arm = arms(preset)[name]
    found = {f: from_json(SweepPoint, results(sweep_trial(preset, corpus, arm, name, f))) for f in factors}
    return {f: None if p.best is None else p.best.validation_perplexity for f, p in found.items()}


def rows(table: Table, preset: Preset, results: Results, corpus: str, rates: Sequence[float]) -> None:
    """Add a row per arm, and say what diverged and which best rates lie at an edge."""
    diverged, outside = [], []
    swept = {name: points_of(preset, results, corpus, name) for name in arms(preset)}
    for name, points in swept.items():
        quantity, best = located(preset, corpus, CHOSEN[name]), best_factor(points)
        values = [points.get(factor) for factor in rates]
        row: list[Cell | None] = [None if value is None else Cell(exactly(value)) for value in values]
        diverged += [f"{name} x {factor:g}" for factor in sorted(points) if points[factor] is None]
        outside += [] if is_inside(points) else [name]
        if best is None:
            table.failed[quantity] = "every training diverged"
        row.append(None if best is None else cell(quantity, exactly(best)))
        row += [against(table, preset, corpus, q, name, swept) for q in (AT_BEST, AT_SHARED)]
        table.add_row(row_label(preset, corpus, name), row)
    where = short(preset, corpus)
    table.notes.append(f"{where}: diverged, and counted as worst: {', '.join(diverged) or 'none'}.")
    table.notes.append(
        f"{where}: best at the edge of the grid, so that a better rate may lie beyond it: "
        f"{', '.join(outside) or 'none'}."
    )


def against(
    table: Table,
    preset: Preset,
    corpus: str,
    quantities: Mapping[str, Quantity],
    name: str,
    swept: Mapping[str, Points],
) -> Cell | None:
    """The cell of ``percent``; None where there is no such comparison."""
    value = percent(swept, name, is_shared=quantities is AT_SHARED) if name in quantities else None
    return None if value is None else cell(located(preset, corpus, quantities[name]), exactly(value))


def percent(swept: Mapping[str, Points], name: str, *, is_shared: bool) -> float | None:
    """How much larger the boosted model's perplexity is, in percent of an arm's, with the sweep's one seed.

    Args:
        swept: the sweep of every arm.
        name: the arm that the boosted model is compared with.
        is_shared: both at the rate that is best for the standard model, instead of each at its own best.
    """
    shared = best_factor(swept[STANDARD]) if STANDARD in swept else None
    pair = [swept[BOOSTED], swept[name]]
    factors = [shared, shared] if is_shared else [best_factor(points) for points in pair]
    ours, theirs = (points.get(f) if f is not None else None for points, f in zip(pair, factors, strict=True))
    return None if ours is None or theirs is None else 100 * (ours / theirs - 1)


def at_one_rate(preset: Preset, results: Results, corpus: str) -> list[str]:
    """What one shared rate would have said of the arms that are tuned: a note, or none where none is tuned here."""
    if not preset.text.tuned or corpus not in texts(preset):
        return []
    swept = {name: points_of(preset, results, corpus, name) for name in finished(preset)}
    if BOOSTED not in swept:
        return []
    found = {name: [percent(swept, name, is_shared=s) for s in (True, False)] for name in AT_BEST if name in swept}
    told = [
        f"{name} {one:+.1f} ({own:+.1f})" for name, (one, own) in found.items() if one is not None and own is not None
    ]
    return [
        f"{short(preset, corpus)}: what one rate for all would say, the standard model's best, by one seed of the "
        f"sweep on validation text: boosted against each in %, in brackets each at its own best: {'; '.join(told)}."
    ]


def collect(preset: Preset, results: Results) -> Table:
    rates = sorted({factor for name in arms(preset) for factor in grid(preset, name)})
    columns = [*(f"x {factor:g}" for factor in rates), "best", *OF_BOOSTED]
    table = Table(TITLE, columns, precision=2, places=places(preset))
    for corpus in texts(preset):
        rows(table, preset, results, corpus, rates)
    table.notes.append(
        f"Seed {preset.text.sweep_seed}, which no table uses. Of two within {100 * CLOSE:g} % the smaller is taken. "
        "The last two columns say of the same trainings what one shared rate would have said."
    )
    return table


def sweep_panel(preset: Preset, results: Results, corpus: str, title: str) -> Panel:
    """The perplexities of every arm by factor; trainings that fell apart or diverged stand on a line above all others.

    One that fell apart would flatten the rest.
    """
    swept = {name: points_of(preset, results, corpus, name) for name in arms(preset)}
    values = [value for points in swept.values() for value in points.values() if value is not None]
    most = FELL_APART * min(values, default=math.inf)
    above = 1.1 * max((value for value in values if value <= most), default=1.0)
    why = [f"above {most:.0f}"] * any(value > most for value in values)
    why += ["diverged"] * any(value is None for points in swept.values() for value in points.values())
    series, lost = [], []
    for name, points in swept.items():
        known = {factor: value for factor, value in sorted(points.items()) if value is not None and value <= most}
        off = sorted(points.keys() - known.keys())
        if known:
            series.append(Series(name=name, x=list(known), y=list(known.values())))
        if off:
            lost.append(Series(name=name, x=off, y=[above] * len(off), style="points"))
    return Panel(
        x_label="factor on all rates",
        y_label="validation perplexity",
        series=[*series, *lost],
        title=title,
        ticks={float(factor): f"{factor:g}" for factor in sorted({f for points in swept.values() for f in points})},
        levels={" or ".join(why): above} if lost else {},
        log_x=True,
    )


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    return Figure(
        name="sweep",
        title="Learning rates",
        caption=f"Not in the paper: one seed each, which no table uses. {describe_places(table)}",
        panels=[sweep_panel(preset, results, corpus, short(preset, corpus)) for corpus in texts(preset)],
    )


EXPERIMENT = Experiment(
    name="lm-sweep", title=TITLE, kind=Kind.LANGUAGE, order=105, trials=trials, collect=collect, figure=figure
)
