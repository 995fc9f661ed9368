"""Table 2: iterating attention on the retrieval task, six configurations."""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.retrieval._shared import (
    BAYES,
    MAIN_CONFIGURATION,
    ONE_STEP,
    SIX,
    UNTRAINED,
    accuracy,
    baseline_trial,
    baselines,
    bayes_accuracy,
    constant,
    task,
    trained_models,
    training_trial,
    where,
)
from boosted_attention.lab.judging.claim import Claim, Role, claim
from boosted_attention.lab.judging.facts import ITERATION_COLLAPSES
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Paired, Table, cell, exactly, over_seeds
from boosted_attention.lab.judging.verdicts import above, equal, number
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Retrieval accuracy (%): one step, and iterated to convergence (Table 2)"
ONE, UNROLLED, IMPLICIT, INJECTED = (
    "one-step",
    "converged, unrolled",
    "converged, implicit",
    "converged, implicit, query injected",
)
TRAINED = {
    ONE: ONE_STEP,
    UNROLLED: {"family": "unrolled"},
    IMPLICIT: {"family": "implicit"},
    INJECTED: {"family": "implicit-injected"},
}
CHANCE = (25.0, 25.0, 12.5, 12.5, 6.3, 6.3)  # as the paper rounds it
CONVERGED = (25.2, 25.2, 12.1, 12.1, 6.7, 6.7)  # by either kind of gradient
PAPER = {
    "chance": dict(zip(SIX, CHANCE, strict=True)),
    "Bayes": BAYES,
    ONE: dict(zip(SIX, (71.1, 55.0, 53.1, 36.4, 46.5, 26.1), strict=True)),
    UNROLLED: dict(zip(SIX, CONVERGED, strict=True)),
    IMPLICIT: dict(zip(SIX, CONVERGED, strict=True)),
}
ACCURACY = {
    (label, c): Quantity(f"{label} | {where(c)}", PAPER.get(label, {}).get(c))
    for label in (*UNTRAINED, *TRAINED)
    for c in SIX
}
UNROLLED_OVER_CHANCE = {c: Quantity(f"{UNROLLED} - chance | {where(c)}") for c in SIX}
IMPLICIT_OVER_CHANCE = {c: Quantity(f"{IMPLICIT} - chance | {where(c)}") for c in SIX}
IMPLICIT_OVER_UNROLLED = {c: Quantity(f"implicit - unrolled | {where(c)}", 0.0) for c in SIX}
ONE_STEP_GAIN = {c: Quantity(f"one-step - converged | {where(c)}") for c in SIX}
INJECTED_OVER_ONE_STEP = {c: Quantity(f"query injected - one-step | {where(c)}") for c in SIX}
INJECTED_OVER_CHANCE = {c: Quantity(f"query injected - chance | {where(c)}") for c in SIX}
AT_CHANCE = 2.0  # points


def trials(preset: Preset) -> list[Trial]:
    return [
        trial
        for c in SIX
        for trial in (
            baseline_trial(preset, task(*c)),
            *(training_trial(preset, task(*c), model) for model in TRAINED.values()),
        )
    ]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [where(c) for c in SIX])
    for label, score in UNTRAINED.items():
        found = {c: exactly(score(baselines(results, baseline_trial(preset, task(*c)))).accuracy) for c in SIX}
        if label == "Bayes":
            found = {c: bayes_accuracy(preset, results, task(*c)) for c in SIX}
        table.add_row(label, [cell(ACCURACY[label, c], found[c]) for c in SIX])
    right = {
        (label, c): accuracy(trained_models(results, training_trial(preset, task(*c), model)))
        for label, model in TRAINED.items()
        for c in SIX
    }
    for label in TRAINED:
        cells: list[Cell | None] = [cell(ACCURACY[label, c], over_seeds(right[label, c])) for c in SIX]
        table.add_row(label, cells)
    pairs = []
    for c in SIX:
        one, unrolled, implicit, injected = (right[label, c] for label in (ONE, UNROLLED, IMPLICIT, INJECTED))
        chance = constant(100 / c[1], one)
        pairs += [
            Paired(UNROLLED_OVER_CHANCE[c], unrolled, chance),
            Paired(IMPLICIT_OVER_CHANCE[c], implicit, chance),
            Paired(IMPLICIT_OVER_UNROLLED[c], implicit, unrolled),
            Paired(ONE_STEP_GAIN[c], one, unrolled),
            Paired(INJECTED_OVER_ONE_STEP[c], injected, one),
            Paired(INJECTED_OVER_CHANCE[c], injected, chance),
        ]
    table.compare(pairs)
    return table


def of_one_configuration(c: tuple[int, int, float]) -> list[Claim]:
    tag, at = f"{c[1]}-{c[2]}", where(c)
    one_step, converged, chance = PAPER[ONE][c], PAPER[UNROLLED][c], PAPER["chance"][c]
    at_chance = [
        claim(
            f"negative-{label.split()[1]}-{tag}",
            ITERATION_COLLAPSES,
            quantity[c],
            equal(0.0, AT_CHANCE),
            f"Iterated to convergence and trained by {how}, attention is at chance at {at}.",
            section="5",
            paper=f"{PAPER[label][c]} (chance {chance})",
        )
        for label, how, quantity in (
            (UNROLLED, "backpropagation", UNROLLED_OVER_CHANCE),
            (IMPLICIT, "implicit differentiation", IMPLICIT_OVER_CHANCE),
        )
    ]
    loss = claim(
        f"negative-loss-{tag}",
        ITERATION_COLLAPSES,
        ONE_STEP_GAIN[c],
        above(),
        f"One step beats convergence at {at}.",
        section="5",
        paper=f"{one_step - converged:+.1f}",
    )
    figures = [
        claim(
            f"negative-{label.lower()}-{tag}",
            ITERATION_COLLAPSES,
            ACCURACY[label, c],
            number(rival=chance, runs=None if label == "Bayes" else 1),
            f"{said} retrieves {ACCURACY[label, c].paper} % at {at}.",
            section="5",
        )
        for label, said in (("Bayes", "The Bayes predictor"), (ONE, "One-step attention"))
    ]
    return [loss, *at_chance, *figures]


CLAIMS = [
    *(made for c in SIX for made in of_one_configuration(c)),
    claim(
        "negative-any-training",
        ITERATION_COLLAPSES,
        IMPLICIT_OVER_UNROLLED[MAIN_CONFIGURATION],
        equal(0.0, AT_CHANCE),
        "How gradients are computed does not matter: exact implicit ones change nothing.",
        section="5",
        paper="identical",
    ),
    claim(
        "negative-injected",
        ITERATION_COLLAPSES,
        INJECTED_OVER_CHANCE[MAIN_CONFIGURATION],
        equal(0.0, AT_CHANCE),
        "A converged layer that sees its query at every step is at chance too.",
        section="5",
        paper="not tested",
        role=Role.CONTROL,
    ),
]

EXPERIMENT = Experiment(
    name="negative",
    title=TITLE,
    kind=Kind.SYNTHETIC,
    order=20,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    by_default=True,
)
