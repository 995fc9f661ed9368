"""A control the paper lacks: when does iterated attention collapse? Inverse temperature, steps, initialisation."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import WORK, task
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, exact, exactly, render

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Iterated retrieval without training: accuracy (%) after 1,000 steps by inverse temperature"
CONFIGURATIONS = [(d, k, sigma) for d, k in ((16, 4), (32, 8), (64, 16)) for sigma in (0.5, 0.8)]
BETAS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 16.0)
STEPS = (1, 5, 20, 1000)


def map_run(preset: Preset, configuration: tuple[int, int, float]) -> Run:
    d, k, sigma = configuration
    return Run(
        work=f"{WORK}:temperature",
        config={
            "task": task(d, k, sigma),
            "betas": list(BETAS),
            "steps": list(STEPS),
            "seeds": [0, 1],
            "test_size": preset.map_size,
        },
        label=f"temperature map, d={d} K={k} sigma={sigma}",
        seconds=4.0,
    )


def runs(preset: Preset) -> list[Run]:
    return [map_run(preset, c) for c in CONFIGURATIONS]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [*(f"beta={beta:g}" for beta in BETAS), "Bayes", "critical beta"])
    for d, k, sigma in CONFIGURATIONS:
        found = results(map_run(preset, (d, k, sigma)))
        name = f"d={d} K={k} sigma={sigma}"
        points = found["fixed_points"]
        for init in ("identity", "default"):
            after = [row[STEPS.index(1000)] for row in found[init]]
            rest = [exact(found["bayes"]), exact(found["critical_beta"]) if init == "identity" else None]
            table.add_row(f"{init}, {name}", [*(exact(value) for value in after), *rest])
        at_eight = found["identity"][BETAS.index(8.0)][STEPS.index(1000)]
        table.quantities[f"kept at beta=8 - Bayes | {name}"] = exactly(at_eight - found["bayes"])
        chance = found["identity"][BETAS.index(2.0)][STEPS.index(1000)] - 100 / k
        table.quantities[f"identity at beta=2 - chance | {name}"] = exactly(chance)
        table.notes.append(
            f"{name}: distinct fixed points from the {k} patterns at beta {', '.join(f'{b:g}' for b in BETAS)}: "
            f"{', '.join(map(str, points))}."
        )
    return table
