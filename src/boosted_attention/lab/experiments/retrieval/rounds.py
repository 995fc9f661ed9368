"""Table 5: how many rounds."""

from __future__ import annotations

from boosted_attention.chart import Figure, Panel, Series, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.retrieval._shared import (
    BAYES,
    MAIN,
    MAIN_CONFIGURATION,
    accuracy,
    baseline_trial,
    baselines,
    bayes_accuracy,
    boosted,
    constant,
    halfway,
    minus,
    squared_error,
    trained_models,
    training_trial,
)
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import FRIEDMANS_BOOSTING, TWO_ROUNDS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity, difference
from boosted_attention.lab.judging.table import Cell, Paired, Table, cell, exactly, over_seeds
from boosted_attention.lab.judging.verdicts import above, below, equal, number
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Rounds of boosting: accuracy (%) and squared error (Table 5)"
PAPER = {1: 46.0, 2: 55.5, 3: 57.6, 4: 58.1, 5: 57.0}
ROUNDS = tuple(PAPER)
ACCURACY = {m: Quantity(f"accuracy | M={m}", paper) for m, paper in PAPER.items()}
CEILING = Quantity("accuracy | Bayes", BAYES[MAIN_CONFIGURATION])
GAIN = {m: difference(ACCURACY[m], ACCURACY[1], f"M={m} - M=1") for m in ROUNDS[1:]}
TO_CEILING = difference(ACCURACY[4], CEILING, "M=4 - Bayes")
FIRST_OVER_LATER = Quantity("(M=2 - M=1) - (M=5 - M=2)")
OVER_HALF_OF_GAP = Quantity("M=2 - halfway from M=1 to Bayes")
FITS = Quantity("||x - F|| of the M=5 models, last round - first")


def trials(preset: Preset) -> list[Trial]:
    return [baseline_trial(preset, MAIN), *(training_trial(preset, MAIN, boosted(m)) for m in ROUNDS)]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, ["Bayes", *(f"M={m}" for m in ROUNDS)], precision=2)
    bayes = baselines(results, baseline_trial(preset, MAIN)).bayes
    found = {m: trained_models(results, training_trial(preset, MAIN, boosted(m))) for m in ROUNDS}
    right = {m: accuracy(found[m]) for m in ROUNDS}
    ceiling = bayes_accuracy(preset, results, MAIN)
    table.add_row("accuracy", [cell(CEILING, ceiling), *(cell(ACCURACY[m], over_seeds(right[m])) for m in ROUNDS)])
    errors = [Cell(exactly(bayes.mse)), *(Cell(over_seeds(squared_error(found[m]))) for m in ROUNDS)]
    table.add_row("squared error", errors)
    halves = halfway(right[1], constant(bayes.accuracy, right[1]))
    distances = {seed: [m.to_query for m in model.rounds] for seed, model in found[5].items()}
    first, last = ({seed: norms[i] for seed, norms in distances.items()} for i in (0, -1))
    table.compare(
        [
            *(Paired(GAIN[m], right[m], right[1]) for m in ROUNDS[1:]),
            Paired(TO_CEILING, right[4], constant(bayes.accuracy, right[4])),
            Paired(FIRST_OVER_LATER, minus(right[2], right[1]), minus(right[5], right[2])),
            Paired(OVER_HALF_OF_GAP, right[2], halves),
            Paired(FITS, last, first),
        ]
    )
    norms = [over_seeds({seed: values[m] for seed, values in distances.items()}).mean for m in range(5)]
    table.notes.append(
        "Mean ||x - F_m|| after each round of the M=5 models, which boosting on the residual would reduce: "
        + ", ".join(f"{value:.2f}" for value in norms)
        + "."
    )
    return table


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    ours = measured("ours, 95 % interval", ROUNDS, [table.quantities[ACCURACY[m]] for m in ROUNDS])
    paper = Series(name="paper, one run", x=ROUNDS, y=list(PAPER.values()), style="dashes")
    panel = Panel(
        x_label="rounds M",
        y_label="accuracy (%)",
        series=[ours, paper],
        ticks={float(m): str(m) for m in ROUNDS},
        levels={"Bayes predictor": table.quantities[CEILING].mean},
    )
    title = f"Retrieval by rounds, {preset.steps} steps"
    return Figure(name="rounds", title=title, caption="The paper's Figure 2, right.", panels=[panel])


CLAIMS = [
    claim(
        "rounds-gain",
        TWO_ROUNDS,
        GAIN[2],
        above(),
        "A second round retrieves more than one.",
        paper=f"{GAIN[2].paper:+}",
    ),
    claim(
        "rounds-diminishing",
        TWO_ROUNDS,
        FIRST_OVER_LATER,
        above(),
        "The step from one to two rounds is larger than all later ones together.",
        paper=f"{GAIN[2].paper} against {PAPER[5] - PAPER[2]}",
    ),
    claim(
        "rounds-gap",
        TWO_ROUNDS,
        OVER_HALF_OF_GAP,
        above(),
        "The second round closes most of the gap to the Bayes predictor: more than half.",
        paper="most",
    ),
    claim(
        "rounds-ceiling",
        TWO_ROUNDS,
        TO_CEILING,
        equal(0.0, 1.0),
        "Four rounds nearly match the Bayes ceiling.",
        paper=f"{PAPER[4]} and {CEILING.paper}",
        role=Role.ASIDE,
    ),
    *(
        claim(
            f"rounds-{m}",
            TWO_ROUNDS,
            ACCURACY[m],
            number(rival=PAPER[2] if m == 1 else PAPER[1]),
            f"{m} round{'s' if m > 1 else ''}: {PAPER[m]} % retrieved.",
        )
        for m in ROUNDS
    ),
    *(
        claim(
            f"rounds-{m}-gain",
            TWO_ROUNDS,
            gain,
            number(),
            f"{m} rounds gain {gain.paper} points on one.",
            paper=f"{gain.paper:+}",
        )
        for m, gain in GAIN.items()
    ),
    claim(
        "rounds-fit",
        FRIEDMANS_BOOSTING,
        FITS,
        below(),
        "Rounds fit their residual: ||x - F|| is smaller after the last of five rounds than after the first.",
        paper="not measured",
        role=Role.CONTROL,
    ),
]

EXPERIMENT = Experiment(
    name="rounds",
    title=TITLE,
    kind=Kind.SYNTHETIC,
    order=30,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    by_default=True,
)
