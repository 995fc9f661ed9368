"""Section 5: can a learned gate find a use for the converged answer?"""

from __future__ import annotations

from dataclasses import asdict

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import MAIN, WORK, by_seed
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, render, trained
from boosted_attention.retrieval.routing import FEATURES
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Routing between one step and the converged answer, by what the gate sees (Section 5)"


def runs(preset: Preset) -> list[Run]:
    config = {
        "task": asdict(RetrievalTask(**MAIN)),
        "training": asdict(RetrievalTraining(steps=preset.steps)),
        "seeds": list(range(preset.seeds)),
        "test_size": preset.test_size,
    }
    seconds = preset.steps * (0.02 + 0.015 * preset.seeds)
    return [Run(work=f"{WORK}:routing", config=config, label="routing", seconds=seconds)]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(
        TITLE, ["one-step accuracy", "routed accuracy", "weight on one-step (%)", "queries sent to one-step (%)"]
    )
    pairs, chance = [], 100 / MAIN["n_patterns"]
    found = results(runs(preset)[0])
    for features in FEATURES:
        result = found[features]
        one, routed = by_seed(result, "one_step", "accuracy"), by_seed(result, "routed", "accuracy")
        weight = {seed: 100 * value for seed, value in by_seed(result, "weight_on_one_step").items()}
        cells = [trained(one), trained(routed), trained(weight), trained(by_seed(result, "chose_one_step"), 100.0)]
        table.add_row(features, cells)
        pairs.append((f"routed - one-step, {features}", routed, one, 0.0))
    rest = by_seed(found["all"], "converged", "accuracy")
    pairs.append(("one-step attention, iterated - chance", rest, dict.fromkeys(rest, chance), None))
    table.compare(pairs)
    return table
