"""A control the paper lacks: does a correction need the residual, or just a second attention?"""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.retrieval._shared import (
    MAIN,
    accuracy,
    boosted,
    halfway,
    trained_models,
    training_trial,
)
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import RESIDUAL_IS_KEY
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Paired, Table, over_seeds
from boosted_attention.lab.judging.verdicts import above
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "What later rounds look at: accuracy (%)"
ROUNDS = (2, 3)
RESIDUAL, PARALLEL, ESTIMATE = "residual x - F", "input x (parallel)", "estimate F"
RULES = {RESIDUAL: {}, PARALLEL: {"residual": "input"}, ESTIMATE: {"residual": "estimate"}}
RESIDUAL_OVER = {(label, m): Quantity(f"residual - {label}, M={m}") for label in (PARALLEL, ESTIMATE) for m in ROUNDS}
HALF_GAIN_OVER_PARALLEL = {m: Quantity(f"half the gain - parallel's gain, M={m}") for m in ROUNDS}


def trials(preset: Preset) -> list[Trial]:
    rules = [training_trial(preset, MAIN, boosted(m, **rule)) for rule in RULES.values() for m in ROUNDS]
    return [training_trial(preset, MAIN, boosted(1)), *rules]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [f"M={m}" for m in ROUNDS], precision=2)
    right = {
        (label, m): accuracy(trained_models(results, training_trial(preset, MAIN, boosted(m, **rule))))
        for label, rule in RULES.items()
        for m in ROUNDS
    }
    for label in RULES:
        table.add_row(label, [Cell(over_seeds(right[label, m])) for m in ROUNDS])
    pairs = [Paired(quantity, right[RESIDUAL, m], right[label, m]) for (label, m), quantity in RESIDUAL_OVER.items()]
    one = accuracy(trained_models(results, training_trial(preset, MAIN, boosted(1))))
    for m in ROUNDS:
        half = halfway(right[RESIDUAL, m], one)
        pairs.append(Paired(HALF_GAIN_OVER_PARALLEL[m], half, right[PARALLEL, m]))
    table.compare(pairs)
    return table


CLAIMS = [
    claim(
        "rounds-residual",
        RESIDUAL_IS_KEY,
        RESIDUAL_OVER[PARALLEL, 2],
        above(),
        "A second attention on x itself, without the residual, gains less.",
        paper="not tested",
        role=Role.CONTROL,
    ),
    claim(
        "rounds-key",
        RESIDUAL_IS_KEY,
        HALF_GAIN_OVER_PARALLEL[2],
        above(),
        "A second attention on x itself gains less than half of what one on the residual does.",
        paper="not tested",
        role=Role.CONTROL,
    ),
]

EXPERIMENT = Experiment(
    name="residual-control",
    title=TITLE,
    kind=Kind.SYNTHETIC,
    order=80,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    by_default=True,
)
