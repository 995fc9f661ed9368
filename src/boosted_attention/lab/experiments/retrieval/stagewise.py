"""A question of ours: rounds trained one after the other, as boosting trains them, or all together?"""

from __future__ import annotations

from boosted_attention.chart import Figure, Panel, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.retrieval._shared import (
    MAIN,
    accuracy,
    boosted,
    squared_error,
    stagewise_trial,
    trained_models,
    training_trial,
)
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import TOGETHER
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Paired, Table, cell, over_seeds
from boosted_attention.lab.judging.verdicts import above
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Rounds trained together and one after the other: accuracy (%) and squared error"
ROUNDS = (2, 3)
JOINT, STAGEWISE = "together", "one after the other"
TRIALS = {JOINT: training_trial, STAGEWISE: stagewise_trial}
PAPERS, LONGER = "the paper's steps", "4 times the steps"
BUDGETS = (PAPERS, LONGER)
ACCURACY = {
    (budget, how, m): Quantity(f"accuracy | {how}, M={m}, {budget}")
    for budget in BUDGETS
    for how in TRIALS
    for m in ROUNDS
}
GAIN = {(budget, m): Quantity(f"together - one after the other, M={m}, {budget}") for budget in BUDGETS for m in ROUNDS}


def one_trial(preset: Preset, budget: str, how: str, m: int) -> Trial:
    longer = {"steps": max(preset.steps + 1, preset.long_steps // 5), "seeds": preset.long_seeds}
    return TRIALS[how](preset, MAIN, boosted(m), **(longer if budget == LONGER else {}))


def trials(preset: Preset) -> list[Trial]:
    return [one_trial(preset, *which) for which in ACCURACY]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [f"{what}, M={m}" for what in ("accuracy", "squared error") for m in ROUNDS], precision=2)
    found = {which: trained_models(results, one_trial(preset, *which)) for which in ACCURACY}
    for budget in BUDGETS:
        for how in TRIALS:
            right = [cell(ACCURACY[budget, how, m], over_seeds(accuracy(found[budget, how, m]))) for m in ROUNDS]
            errors = [Cell(over_seeds(squared_error(found[budget, how, m]))) for m in ROUNDS]
            table.add_row(f"{how}, {budget}", [*right, *errors])
    table.compare(
        [
            Paired(quantity, accuracy(found[budget, JOINT, m]), accuracy(found[budget, STAGEWISE, m]))
            for (budget, m), quantity in GAIN.items()
        ]
    )
    table.notes.append(
        "One after the other: round m is trained on the task's loss with all before it frozen, its gate with it, then "
        "all rounds together; M + 1 phases, each with a cosine of its own, in the same number of steps."
    )
    return table


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    panels = [
        Panel(
            title=budget,
            x_label="rounds M",
            y_label="accuracy (%)",
            series=[
                measured(how, ROUNDS, [table.quantities[ACCURACY[budget, how, m]] for m in ROUNDS]) for how in TRIALS
            ],
            ticks={float(m): str(m) for m in ROUNDS},
        )
        for budget in BUDGETS
    ]
    caption = "Not in the paper, which trains all rounds together."
    return Figure(name="stagewise", title="Rounds trained one after the other", caption=caption, panels=panels)


CLAIMS = [
    claim(
        f"stagewise-{m}",
        TOGETHER,
        GAIN[PAPERS, m],
        above(),
        f"{m} rounds trained together retrieve more than {m} trained one after the other, in as many steps.",
        paper="not tested",
    )
    for m in ROUNDS
]

EXPERIMENT = Experiment(
    name="stagewise",
    title=TITLE,
    kind=Kind.SYNTHETIC,
    order=95,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    by_default=True,
)
