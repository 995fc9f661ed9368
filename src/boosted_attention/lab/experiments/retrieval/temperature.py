"""A control the paper lacks: when does iterated attention collapse? Inverse temperature, steps, initialisation."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean as mean

from boosted_attention.chart import Figure, Panel, Series
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.retrieval._shared import MAIN_CONFIGURATION, SIX, Configuration, task, where
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import ITERATION_COLLAPSES
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Table, exactly, over_seeds
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.records import from_json
from boosted_attention.retrieval.iteration import TemperatureMap
from boosted_attention.retrieval.task import RetrievalTask

TITLE = "Iterated retrieval without training: accuracy (%) after 1,000 steps by inverse temperature"
BETAS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 16.0)
STEPS = (1, 5, 20, 1000)
KEPT = {c: Quantity(f"kept at beta=8 - Bayes | {where(c)}") for c in SIX}
COLLAPSED = {c: Quantity(f"identity at beta=2 - chance | {where(c)}") for c in SIX}


def map_trial(preset: Preset, configuration: Configuration) -> Trial:
    return Trial(
        work="retrieval.temperature",
        config={
            "task": asdict(RetrievalTask(**task(*configuration))),
            "betas": list(BETAS),
            "steps": list(STEPS),
            "seeds": list(range(preset.long_seeds)),
            "test_size": preset.map_size,
        },
        label=f"temperature map, {where(configuration)}",
        seconds=4.0,
    )


def temperature_map(results: Results, trial: Trial) -> TemperatureMap:
    return from_json(TemperatureMap, results(trial))


def trials(preset: Preset) -> list[Trial]:
    return [map_trial(preset, c) for c in SIX]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [*(f"beta={beta:g}" for beta in BETAS), "Bayes", "critical beta"])
    last, two, eight = STEPS.index(1000), BETAS.index(2.0), BETAS.index(8.0)
    for c in SIX:
        found, (d, k, sigma) = temperature_map(results, map_trial(preset, c)), c
        bayes, critical = Cell(exactly(found.bayes)), Cell(exactly(found.critical_beta))
        identity = [Cell(exactly(row[last])) for row in found.identity]
        default = [Cell(over_seeds(row[last])) for row in found.default]
        table.add_row(f"identity, {where(c)}", [*identity, bayes, critical])
        table.add_row(f"default, {where(c)}", [*default, bayes, None])
        table.quantities[KEPT[c]] = exactly(found.identity[eight][last] - found.bayes)
        table.quantities[COLLAPSED[c]] = exactly(found.identity[two][last] - 100 / k)
        if sigma == 0.5:  # the patterns do not depend on the noise
            table.notes.append(f"Distinct points the {k} patterns are carried to (d={d}), and the contraction there:\n")
            table.notes.append(phases(found))
    return table


def phases(found: TemperatureMap) -> str:
    """Fixed points kept, by beta and steps, as Markdown."""
    lines = ["| | " + " | ".join(f"beta={beta:g}" for beta in BETAS) + " |", "|---" * (len(BETAS) + 1) + "|"]
    for j, steps in enumerate(STEPS):
        kept = [str(row[j]) for row in found.fixed_points]
        lines.append(f"| after {steps} step{'s' * (steps > 1)} | " + " | ".join(kept) + " |")
    factors = [f"{value:.2f}" for value in found.contraction]
    return "\n".join([*lines, "| spectral radius at rest | " + " | ".join(factors) + " |"])


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    found = temperature_map(results, map_trial(preset, MAIN_CONFIGURATION))
    default = [[mean(list(seeds.values())) for seeds in row] for row in found.default]
    panels = []
    for init, after in (("identity", found.identity), ("default", default)):
        series = [
            Series(name=f"{steps} step{'s' * (steps > 1)}", x=BETAS, y=[row[j] for row in after])
            for j, steps in enumerate(STEPS)
        ]
        panels.append(
            Panel(
                x_label="inverse temperature",
                y_label="accuracy (%)",
                series=series,
                title=f"{init} projections",
                ticks={float(beta): f"{beta:g}" for beta in BETAS},
                log_x=True,
                marks={"critical": found.critical_beta} if init == "identity" else {},
                levels={"Bayes predictor": found.bayes, "chance": 100 / MAIN_CONFIGURATION[1]},
            )
        )
    d, k, sigma = MAIN_CONFIGURATION
    return Figure(
        name="temperature",
        title=f"Iterated retrieval without training, d={d}, K={k}, sigma={sigma}",
        caption="Not in the paper: the attention map applied again and again, by inverse temperature; the mark is "
        "where every pattern begins to have a fixed point of its own.",
        panels=panels,
    )


CLAIMS = [
    claim(
        "iteration-temperature",
        ITERATION_COLLAPSES,
        KEPT[MAIN_CONFIGURATION],
        below(-10.0),
        "Iteration destroys accuracy at any inverse temperature: untrained, at beta = 8, by 10 points or more.",
        paper="not tested",
        role=Role.CONTROL,
    )
]

EXPERIMENT = Experiment(
    name="temperature",
    title=TITLE,
    kind=Kind.SYNTHETIC,
    order=90,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    by_default=True,
)
