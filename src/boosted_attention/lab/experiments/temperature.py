"""A control the paper lacks: when does iterated attention collapse? Inverse temperature, steps, initialisation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import SIX, WORK, by_seed, task
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, exact, exactly, render, trained
from boosted_attention.retrieval.task import RetrievalTask

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Iterated retrieval without training: accuracy (%) after 1,000 steps by inverse temperature"
BETAS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 16.0)
STEPS = (1, 5, 20, 1000)


def map_run(preset: Preset, configuration: tuple[int, int, float]) -> Run:
    d, k, sigma = configuration
    return Run(
        work=f"{WORK}:temperature",
        config={
            "task": asdict(RetrievalTask(**task(d, k, sigma))),
            "betas": list(BETAS),
            "steps": list(STEPS),
            "seeds": list(range(preset.long_seeds)),
            "test_size": preset.map_size,
        },
        label=f"temperature map, d={d} K={k} sigma={sigma}",
        seconds=4.0,
    )


def runs(preset: Preset) -> list[Run]:
    return [map_run(preset, c) for c in SIX]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [*(f"beta={beta:g}" for beta in BETAS), "Bayes", "critical beta"])
    last, two, eight = STEPS.index(1000), BETAS.index(2.0), BETAS.index(8.0)
    for d, k, sigma in SIX:
        found = results(map_run(preset, (d, k, sigma)))
        name = f"d={d} K={k} sigma={sigma}"
        ends = [exact(found["bayes"]), exact(found["critical_beta"])]
        table.add_row(f"identity, {name}", [*(exact(row[last]) for row in found["identity"]), *ends])
        table.add_row(f"default, {name}", [*(trained(by_seed(row[last])) for row in found["default"]), ends[0], None])
        table.quantities[f"kept at beta=8 - Bayes | {name}"] = exactly(found["identity"][eight][last] - found["bayes"])
        table.quantities[f"identity at beta=2 - chance | {name}"] = exactly(found["identity"][two][last] - 100 / k)
        if sigma == 0.5:  # the patterns do not depend on the noise
            table.notes.append(f"Distinct points the {k} patterns are carried to (d={d}), and the contraction there:\n")
            table.notes.append(phases(found))
    return table


def phases(found: dict[str, Any]) -> str:
    """Fixed points kept, by beta and steps."""
    lines = ["| | " + " | ".join(f"beta={beta:g}" for beta in BETAS) + " |", "|---" * (len(BETAS) + 1) + "|"]
    for j, steps in enumerate(STEPS):
        kept = [str(row[j]) for row in found["fixed_points"]]
        lines.append(f"| after {steps} step{'s' * (steps > 1)} | " + " | ".join(kept) + " |")
    factors = [f"{value:.2f}" for value in found["contraction"]]
    return "\n".join([*lines, "| spectral radius at rest | " + " | ".join(factors) + " |"])
