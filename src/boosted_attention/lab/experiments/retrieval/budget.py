"""A control the paper lacks: is the gain of more rounds a matter of training length and learning rate?"""

from __future__ import annotations

from typing import Any

from boosted_attention.chart import Figure, Panel, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.retrieval._shared import (
    MAIN,
    accuracy,
    baseline_trial,
    baselines,
    boosted,
    trained_models,
    training_trial,
)
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import TWO_ROUNDS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Paired, Table, cell, exactly, over_seeds
from boosted_attention.lab.judging.verdicts import above
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Rounds against training budget: accuracy (%)"
ROUNDS = (1, 2, 3)
PAPERS, FAST, LONGER, LONGER_FAST, LONGEST = (
    "the paper's budget",
    "the paper's steps, learning rate 2e-2",
    "4 times the steps",
    "4 times the steps, learning rate 2e-2",
    "20 times the steps",
)
ROUNDS_OF = {PAPERS: ROUNDS, FAST: ROUNDS, LONGER: ROUNDS, LONGER_FAST: ROUNDS[:2], LONGEST: ROUNDS[:2]}
ACCURACY = {(budget, m): Quantity(f"{budget} | M={m}") for budget, rounds in ROUNDS_OF.items() for m in rounds}
GAIN = {(budget, m): Quantity(f"M={m} - M=1, {budget}") for budget, m in ACCURACY if m > 1}


def training(preset: Preset) -> dict[str, dict[str, Any]]:
    """Steps, learning rate and seeds of each budget."""
    longer = {"steps": max(preset.steps + 1, preset.long_steps // 5), "seeds": preset.long_seeds}
    longest = {"steps": preset.long_steps, "seeds": preset.long_seeds}
    fast = {"lr": 2e-2}
    return {PAPERS: {}, FAST: fast, LONGER: longer, LONGER_FAST: {**fast, **longer}, LONGEST: longest}


def one_trial(preset: Preset, budget: str, m: int) -> Trial:
    return training_trial(preset, MAIN, boosted(m), **training(preset)[budget])


def trials(preset: Preset) -> list[Trial]:
    return [baseline_trial(preset, MAIN), *(one_trial(preset, budget, m) for budget, m in ACCURACY)]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [f"M={m}" for m in ROUNDS], precision=2)
    right = {(budget, m): accuracy(trained_models(results, one_trial(preset, budget, m))) for budget, m in ACCURACY}
    for budget, rounds in ROUNDS_OF.items():
        cells: list[Cell | None] = [cell(ACCURACY[budget, m], over_seeds(right[budget, m])) for m in rounds]
        table.add_row(budget, cells + [None] * (len(ROUNDS) - len(rounds)))
    table.add_row("Bayes", [Cell(exactly(bayes(preset, results)))] * len(ROUNDS))
    table.compare([Paired(gain, right[budget, m], right[budget, 1]) for (budget, m), gain in GAIN.items()])
    return table


def bayes(preset: Preset, results: Results) -> float:
    """Accuracy of the Bayes predictor."""
    return baselines(results, baseline_trial(preset, MAIN)).bayes.accuracy


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    series = []
    for i, (budget, rounds) in enumerate(ROUNDS_OF.items()):
        estimates = [table.quantities[ACCURACY[budget, m]] for m in rounds]
        series.append(measured(budget, [m + 0.05 * (i - 2) for m in rounds], estimates))
    panel = Panel(
        x_label="rounds M",
        y_label="accuracy (%)",
        series=series,
        ticks={float(m): str(m) for m in ROUNDS},
        levels={"Bayes predictor": bayes(preset, results)},
    )
    caption = "Not in the paper: the same models with more training, or a higher learning rate."
    return Figure(name="budget", title="Rounds against training budget", caption=caption, panels=[panel])


CLAIMS = [
    claim(
        "rounds-converged",
        TWO_ROUNDS,
        GAIN[LONGEST, 2],
        above(),
        "The gain belongs to the rounds: it remains when training is long enough.",
        paper="not tested",
        role=Role.CONTROL,
    )
]

EXPERIMENT = Experiment(
    name="budget",
    title=TITLE,
    kind=Kind.SYNTHETIC,
    order=70,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    by_default=True,
)
