"""What the retrieval experiments share: their runs, and reading results by seed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining

SIX = [(d, k, sigma) for d, k in ((16, 4), (32, 8), (64, 16)) for sigma in (0.5, 0.8)]  # Table 2's configurations
UNTRAINED = {"chance": "chance", "raw query": "raw", "MAP": "map", "Bayes": "bayes"}
WORK = "boosted_attention.lab.work"
MAIN = {"d": 64, "n_patterns": 16, "sigma": 0.5}  # the configuration of the paper's ablations
ONE_STEP = {"family": "boosted", "n_rounds": 1}
COST = {"boosted": 1.0, "unrolled": 8.0, "implicit": 5.5, "implicit-injected": 5.5}


def task(d: int, n_patterns: int, sigma: float) -> dict[str, Any]:
    return {"d": d, "n_patterns": n_patterns, "sigma": sigma}


def boosted(n_rounds: int, **options: str) -> dict[str, Any]:
    return {"family": "boosted", "n_rounds": n_rounds, **options}


def describe(the_task: dict[str, Any]) -> str:
    patterns = f", patterns {the_task['pattern_seed']}" if "pattern_seed" in the_task else ""
    return f"d={the_task['d']} K={the_task['n_patterns']} sigma={the_task['sigma']}{patterns}"


def name_of(model: dict[str, Any]) -> str:
    extra = [str(value) for key, value in model.items() if key not in ("family", "n_rounds")]
    rounds = f"M={model['n_rounds']}" if model["family"] == "boosted" else model["family"]
    return " ".join([rounds, *extra])


def training_run(
    preset: Preset,
    the_task: dict[str, Any],
    model: dict[str, Any],
    *,
    steps: int | None = None,
    lr: float = 3e-3,
    seeds: int | None = None,
) -> Run:
    """One model on one task, all seeds."""
    steps, seeds = preset.steps if steps is None else steps, preset.seeds if seeds is None else seeds
    size = seeds * (the_task["d"] / 64) ** 2
    return Run(
        work=f"{WORK}:retrieval",
        config={
            "task": asdict(RetrievalTask(**the_task)),
            "model": asdict(RetrievalModel(**model)),
            "training": asdict(RetrievalTraining(steps=steps, lr=lr)),
            "seeds": list(range(seeds)),
            "test_size": preset.test_size,
        },
        label=f"{name_of(model)}, {describe(the_task)}, {steps} steps" + (f", lr {lr:g}" if lr != 3e-3 else ""),
        seconds=steps * COST[model["family"]] * (0.004 + 0.0008 * size * (1 + model.get("n_rounds", 1))),
    )


def baseline_run(preset: Preset, the_task: dict[str, Any]) -> Run:
    """Chance, raw query, MAP and Bayes, on the test set of the trained models."""
    return Run(
        work=f"{WORK}:baselines",
        config={"task": asdict(RetrievalTask(**the_task)), "test_size": preset.test_size},
        label=f"baselines, {describe(the_task)}",
        seconds=0.3,
    )


def by_seed(result: dict[str, Any], *path: str) -> dict[int, float]:
    """One number per seed, found under ``path`` in each seed's entry."""
    values = {}
    for seed, entry in result.items():
        for key in path:
            entry = entry[key]
        values[int(seed)] = float(entry)
    return values
