"""What the retrieval experiments share: the paper's task, their trials, and reading results by seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.judging.table import BySeed
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.records import from_json
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.scoring import Baselines, RetrievalResult
from boosted_attention.retrieval.task import RetrievalTask, Score
from boosted_attention.retrieval.training import RetrievalTraining
from boosted_attention.statistics import Estimate, share

Configuration = tuple[int, int, float]  # dimension, patterns, noise
SIX: list[Configuration] = [(d, k, sigma) for d, k in ((16, 4), (32, 8), (64, 16)) for sigma in (0.5, 0.8)]  # Table 2
MAIN_CONFIGURATION = SIX[4]  # of the paper's ablations
BAYES = dict(zip(SIX, (80.7, 61.9, 68.8, 45.3, 58.1, 32.6), strict=True))  # the paper's accuracies, in percent
UNTRAINED: dict[str, Callable[[Baselines], Score]] = {
    "chance": lambda found: found.chance,
    "raw query": lambda found: found.raw,
    "MAP": lambda found: found.map,
    "Bayes": lambda found: found.bayes,
}
ONE_STEP = {"family": "boosted", "n_rounds": 1}
COST = {"boosted": 1.0, "unrolled": 8.0, "implicit": 5.5, "implicit-injected": 5.5}


def task(d: int, n_patterns: int, sigma: float) -> dict[str, Any]:
    return {"d": d, "n_patterns": n_patterns, "sigma": sigma}


MAIN = task(*MAIN_CONFIGURATION)


def where(configuration: Configuration) -> str:
    d, k, sigma = configuration
    return f"d={d} K={k} sigma={sigma}"


def boosted(n_rounds: int, **options: str) -> dict[str, Any]:
    return {"family": "boosted", "n_rounds": n_rounds, **options}


def describe(the_task: dict[str, Any]) -> str:
    patterns = f", patterns {the_task['pattern_seed']}" if "pattern_seed" in the_task else ""
    return f"d={the_task['d']} K={the_task['n_patterns']} sigma={the_task['sigma']}{patterns}"


def name_of(model: dict[str, Any]) -> str:
    extra = [str(value) for key, value in model.items() if key not in ("family", "n_rounds")]
    rounds = f"M={model['n_rounds']}" if model["family"] == "boosted" else model["family"]
    return " ".join([rounds, *extra])


def training_trial(
    preset: Preset,
    the_task: dict[str, Any],
    model: dict[str, Any],
    *,
    steps: int | None = None,
    lr: float = 3e-3,
    seeds: int | None = None,
) -> Trial:
    """One model on one task, all seeds."""
    steps, seeds = preset.steps if steps is None else steps, preset.seeds if seeds is None else seeds
    size = seeds * (the_task["d"] / 64) ** 2
    return Trial(
        work="retrieval.train",
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


def stagewise_trial(preset: Preset, the_task: dict[str, Any], model: dict[str, Any], **options: Any) -> Trial:
    """One model on one task, all seeds, its rounds trained one after the other; options are ``training_trial``'s."""
    joint = training_trial(preset, the_task, model, **options)
    return replace(joint, work="retrieval.train-stagewise", label=f"{joint.label}, stagewise")


def baseline_trial(preset: Preset, the_task: dict[str, Any]) -> Trial:
    """Chance, raw query, MAP and Bayes, on the test set of the trained models."""
    return Trial(
        work="retrieval.baselines",
        config={"task": asdict(RetrievalTask(**the_task)), "test_size": preset.test_size},
        label=f"baselines, {describe(the_task)}",
        seconds=0.3,
    )


def baselines(results: Results, trial: Trial) -> Baselines:
    """Scores of the predictors that need no training."""
    return from_json(Baselines, results(trial))


def trained_models(results: Results, trial: Trial) -> dict[int, RetrievalResult]:
    """The trained models of a trial, by seed."""
    return from_json(dict[int, RetrievalResult], results(trial))


def accuracy(found: Mapping[int, Score]) -> BySeed:
    """Accuracy in percent."""
    return {seed: score.accuracy for seed, score in found.items()}


def squared_error(found: Mapping[int, Score]) -> BySeed:
    return {seed: score.mse for seed, score in found.items()}


def minus(a: BySeed, b: BySeed) -> dict[int, float]:
    """a - b, seed by seed."""
    return {seed: value - b[seed] for seed, value in a.items()}


def halfway(a: BySeed, b: BySeed) -> dict[int, float]:
    """The mean of a and b, seed by seed."""
    return {seed: (value + b[seed]) / 2 for seed, value in a.items()}


def bayes_accuracy(preset: Preset, results: Results, the_task: dict[str, Any]) -> Estimate:
    """Accuracy of the Bayes predictor, which is a share of the queries of one test set."""
    found = baselines(results, baseline_trial(preset, the_task)).bayes.accuracy
    return share(found, preset.test_size, "test queries")


def constant(value: float, like: BySeed) -> dict[int, float]:
    """The same value for every seed."""
    return dict.fromkeys(like, value)
