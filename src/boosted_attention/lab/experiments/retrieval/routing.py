"""Section 5: can a learned gate find a use for the converged answer?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.retrieval._shared import MAIN, accuracy, constant
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import ITERATION_COLLAPSES
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Paired, Table, cell, over_seeds
from boosted_attention.lab.judging.verdicts import equal
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.records import from_json
from boosted_attention.retrieval.routing import RoutingResult
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining

TITLE = "Routing between one step and the converged answer, by what the gate sees (Section 5)"
SEES = {
    "outputs": "both answers",
    "difference": "their difference",
    "divergence": "their distance",
    "entropy": "the attention's entropy",
    "all": "all of these",
}
SENT = {features: Quantity(f"{features} | queries sent to one-step (%)", 100.0) for features in SEES}
ROUTED_OVER_ONE_STEP = {features: Quantity(f"routed - one-step, {features}", 0.0) for features in SEES}
ITERATED_OVER_CHANCE = Quantity("one-step attention, iterated - chance")


def trials(preset: Preset) -> list[Trial]:
    config = {
        "task": asdict(RetrievalTask(**MAIN)),
        "training": asdict(RetrievalTraining(steps=preset.steps)),
        "seeds": list(range(preset.seeds)),
        "test_size": preset.test_size,
    }
    seconds = preset.steps * (0.02 + 0.015 * preset.seeds)
    return [Trial(work="retrieval.routing", config=config, label="routing", seconds=seconds)]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(
        TITLE, ["one-step accuracy", "routed accuracy", "weight on one-step (%)", "queries sent to one-step (%)"]
    )
    found, pairs = from_json(dict[str, dict[int, RoutingResult]], results(trials(preset)[0])), []
    for features in SEES:
        routes = found[features]
        one = accuracy({seed: route.one_step for seed, route in routes.items()})
        routed = accuracy({seed: route.routed for seed, route in routes.items()})
        weight = {seed: 100 * route.weight_on_one_step for seed, route in routes.items()}
        sent = over_seeds({seed: route.chose_one_step for seed, route in routes.items()})
        cells = [Cell(over_seeds(values)) for values in (one, routed, weight)]
        table.add_row(features, [*cells, cell(SENT[features], sent)])
        pairs.append(Paired(ROUTED_OVER_ONE_STEP[features], routed, one))
    rest = accuracy({seed: route.converged for seed, route in found["all"].items()})
    pairs.append(Paired(ITERATED_OVER_CHANCE, rest, constant(100 / MAIN["n_patterns"], rest)))
    table.compare(pairs)
    return table


def said(paper: str, features: str) -> dict[str, Any]:
    """What the paper says of a gate; all features together are ours, since it names the first four only."""
    return {"paper": "not tested", "role": Role.CONTROL} if features == "all" else {"paper": paper}


CLAIMS = [
    *(
        claim(
            f"routing-{features}",
            ITERATION_COLLAPSES,
            SENT[features],
            equal(100.0, 1.0),
            f"A gate that sees {what} learns to take the one-step answer always.",
            section="5",
            **said("always", features),
        )
        for features, what in SEES.items()
    ),
    *(
        claim(
            f"routing-{features}-accuracy",
            ITERATION_COLLAPSES,
            ROUTED_OVER_ONE_STEP[features],
            equal(0.0, 0.5),
            f"Routed by a gate that sees {what}, accuracy is that of one step.",
            section="5",
            **said("identical", features),
        )
        for features, what in SEES.items()
    ),
    claim(
        "negative-iterated",
        ITERATION_COLLAPSES,
        ITERATED_OVER_CHANCE,
        equal(0.0, 2.0),
        "Attention trained for one step and then iterated to convergence is near chance.",
        section="4.1",
        paper="near chance",
    ),
]

EXPERIMENT = Experiment(
    name="routing",
    title=TITLE,
    kind=Kind.SYNTHETIC,
    order=60,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    by_default=True,
)
