"""The same attention repeated, with learned halting (PonderNet), against rounds with projections of their own."""

from __future__ import annotations

from dataclasses import asdict

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.retrieval._shared import (
    MAIN,
    ONE_STEP,
    accuracy,
    boosted,
    describe,
    squared_error,
    trained_models,
    training_trial,
)
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import OWN_PROJECTIONS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Cell, Paired, Table, cell, exactly, over_seeds
from boosted_attention.lab.judging.verdicts import above
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.records import from_json
from boosted_attention.retrieval.pondering import PonderResult
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining

TITLE = "Pondering: accuracy (%), squared error and steps"
STEPS, BETA = 4, 0.01
BOOSTED = f"boosted, {STEPS} rounds"
FIXED = {"one step": (ONE_STEP, 1), BOOSTED: (boosted(STEPS), STEPS)}
PRIORS = {f"PonderNet, prior {prior:g}": prior for prior in (0.2, 0.5)}
ACCURACY = {name: Quantity(f"accuracy | {name}") for name in (*FIXED, *PRIORS)}
OVER_ONE = {name: Quantity(f"{name} - one step") for name in PRIORS}
OVER_PONDERING = {name: Quantity(f"{BOOSTED} - {name}") for name in PRIORS}


def ponder_trial(preset: Preset, prior: float) -> Trial:
    """Attention that ponders, all seeds."""
    return Trial(
        work="retrieval.ponder",
        config={
            "task": asdict(RetrievalTask(**MAIN)),
            "model": {"n_steps": STEPS, "prior": prior, "beta": BETA},
            "training": asdict(RetrievalTraining(steps=preset.steps)),
            "seeds": list(range(preset.seeds)),
            "test_size": preset.test_size,
        },
        label=f"PonderNet, prior {prior:g}, {describe(MAIN)}, {preset.steps} steps",
        seconds=preset.steps * 0.02,
    )


def trials(preset: Preset) -> list[Trial]:
    fixed = [training_trial(preset, MAIN, model) for model, _ in FIXED.values()]
    return [*fixed, *(ponder_trial(preset, prior) for prior in PRIORS.values())]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, ["accuracy", "squared error", "steps"], precision=2)
    right: dict[str, BySeed] = {}
    for name, (model, steps) in FIXED.items():
        found = trained_models(results, training_trial(preset, MAIN, model))
        right[name] = accuracy(found)
        cells = [cell(ACCURACY[name], over_seeds(right[name])), Cell(over_seeds(squared_error(found)))]
        table.add_row(name, [*cells, Cell(exactly(steps))])
    for name, prior in PRIORS.items():
        found = from_json(dict[int, PonderResult], results(ponder_trial(preset, prior)))
        right[name] = accuracy(found)
        taken = over_seeds({seed: one.steps for seed, one in found.items()})
        cells = [cell(ACCURACY[name], over_seeds(right[name])), Cell(over_seeds(squared_error(found))), Cell(taken)]
        table.add_row(name, cells)
    table.compare(
        [
            *(Paired(quantity, right[name], right["one step"]) for name, quantity in OVER_ONE.items()),
            *(Paired(quantity, right[BOOSTED], right[name]) for name, quantity in OVER_PONDERING.items()),
        ]
    )
    table.notes.append(
        f"At most {STEPS} steps with one set of weights, each on the query plus the last answer; beta {BETA:g}. Steps "
        "are those of the likeliest answer."
    )
    return table


CLAIMS = [
    claim(
        f"ponder-{prior:g}",
        OWN_PROJECTIONS,
        OVER_PONDERING[name],
        above(),
        f"{STEPS} rounds retrieve more than up to {STEPS} steps of one attention that halts as it has learned, prior "
        f"{prior:g}.",
        paper="not tested",
    )
    for name, prior in PRIORS.items()
]

EXPERIMENT = Experiment(
    name="pondering",
    title=TITLE,
    kind=Kind.SYNTHETIC,
    order=98,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    by_default=True,
)
