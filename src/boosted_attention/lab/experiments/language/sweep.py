"""Learning rates: every arm at its own best, found on validation text with a seed that no table uses."""

from __future__ import annotations

import math
from collections.abc import Mapping

from boosted_attention.chart import Figure, Panel, Series
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._shared import (
    BOOSTED,
    PLAIN,
    describe_places,
    located,
    main_arms,
    matched_arm,
    places,
    row_label,
    short,
)
from boosted_attention.lab.experiments.language._trials import Arm, sweep_trial
from boosted_attention.lab.experiments.language.controls import DEEPER, EQUAL_FLOPS, PARALLEL
from boosted_attention.lab.experiments.language.controls import arms as control_arms
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Table, cell, exactly
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import SweepPoint
from boosted_attention.records import from_json

TITLE = "Validation perplexity by learning rate: factors on all rates of the recipe"
SHARED = "shared K/V"
CLOSE = 0.005  # of the perplexity: points nearer than this are taken for equal
NAMES = ("standard", "twicing", "param-fair", "boosted", PARALLEL, EQUAL_FLOPS, DEEPER, SHARED)
CHOSEN = {name: Quantity(f"best factor, {name}") for name in NAMES}
Points = Mapping[float, float | None]  # factor: validation perplexity; None where training diverged


def arms(preset: Preset) -> dict[str, Arm]:
    """The arms whose rate is tuned."""
    controls = control_arms(preset)
    return {
        **main_arms(preset),
        PARALLEL: controls[PARALLEL],
        EQUAL_FLOPS: matched_arm(preset, PLAIN[BOOSTED], "flops"),
        DEEPER: controls[DEEPER],
        SHARED: {"attention": "boosted-shared"},
    }


def point(preset: Preset, corpus: str, arm: Arm, name: str, factor: float) -> Trial:
    return sweep_trial(preset, corpus, arm, f"{name}, rates x {factor:g}", factor)


def trials(preset: Preset) -> list[Trial]:
    return [
        point(preset, corpus, arm, name, factor)
        for corpus in preset.text.corpora
        for name, arm in arms(preset).items()
        for factor in preset.text.rates
    ]


def points_of(preset: Preset, results: Results, corpus: str, name: str) -> dict[float, float | None]:
    """The sweep of one arm on one corpus."""
    arm = arms(preset)[name]
    found = {f: from_json(SweepPoint, results(point(preset, corpus, arm, name, f))) for f in preset.text.rates}
    return {f: None if p.best is None else p.best.validation_perplexity for f, p in found.items()}


def best_factor(points: Points) -> float | None:
    """The factor with the lowest validation perplexity; of the best two, if they are close, the smaller.

    None where every training diverged.
    """
    best_two = sorted((value, factor) for factor, value in points.items() if value is not None)[:2]
    close = [factor for value, factor in best_two if value <= best_two[0][0] * (1 + CLOSE)]
    return min(close, default=None)


def is_inside(points: Points) -> bool:
    """Whether the lowest perplexity has a point on either side; a diverged one counts as the worst."""
    values = [points[factor] for factor in sorted(points)]
    worst_last = [math.inf if value is None else value for value in values]
    return 0 < worst_last.index(min(worst_last)) < len(values) - 1


def collect(preset: Preset, results: Results) -> Table:
    rates = sorted(preset.text.rates)
    table = Table(TITLE, [*(f"x {factor:g}" for factor in rates), "best"], precision=2, places=places(preset))
    for corpus in preset.text.corpora:
        diverged, outside = [], []
        for name in arms(preset):
            points, quantity = points_of(preset, results, corpus, name), located(preset, corpus, CHOSEN[name])
            best = best_factor(points)
            values = [points[factor] for factor in rates]
            row: list[Cell | None] = [None if value is None else Cell(exactly(value)) for value in values]
            diverged += [f"{name} x {factor:g}" for factor in rates if points[factor] is None]
            outside += [] if is_inside(points) else [name]
            if best is None:
                table.failed[quantity] = "every training diverged"
            table.add_row(
                row_label(preset, corpus, name), [*row, None if best is None else cell(quantity, exactly(best))]
            )
        where = short(preset, corpus)
        table.notes.append(f"{where}: diverged, and counted as worst: {', '.join(diverged) or 'none'}.")
        table.notes.append(
            f"{where}: best at the edge of the grid, so that a better rate may lie beyond it: "
            f"{', '.join(outside) or 'none'}."
        )
    table.notes.append(
        f"Seed {preset.text.sweep_seed}, which no table uses. Of two within {100 * CLOSE:g} % the smaller is taken."
    )
    return table


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    panels = []
    for corpus in preset.text.corpora:
        series = []
        for name in arms(preset):
            points = points_of(preset, results, corpus, name)
            known = {factor: value for factor, value in sorted(points.items()) if value is not None}
            series.append(Series(name=name, x=list(known), y=list(known.values())))
        panels.append(
            Panel(
                x_label="factor on all rates",
                y_label="validation perplexity",
                series=series,
                title=short(preset, corpus),
                ticks={float(factor): f"{factor:g}" for factor in sorted(preset.text.rates)},
                log_x=True,
            )
        )
    return Figure(
        name="sweep",
        title="Learning rates",
        caption=f"Not in the paper: one seed each, which no table uses. {describe_places(table)}",
        panels=panels,
    )


EXPERIMENT = Experiment(
    name="lm-sweep", title=TITLE, kind=Kind.LANGUAGE, order=105, trials=trials, collect=collect, figure=figure
)
