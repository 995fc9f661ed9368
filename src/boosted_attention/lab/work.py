"""The work of a run: functions of (progress, **config) whose result is JSON. Results are keyed by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.records import to_json
from boosted_attention.retrieval.iteration import temperature_map
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.routing import FEATURES, Routers, score_routes
from boosted_attention.retrieval.scoring import score_baselines, score_trained
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import Training, train

Progress = Callable[[float], None]
Config = dict[str, Any]


def baselines(progress: Progress, *, task: Config, test_size: int) -> Config:
    """Score chance, raw query, MAP and Bayes on one test set: a ``Baselines``."""
    return to_json(score_baselines(RetrievalTask(**task), test_size))


def retrieval(
    progress: Progress, *, task: Config, model: Config, training: Config, seeds: Sequence[int], test_size: int
) -> Config:
    """Train one model for all seeds and score it: {seed: RetrievalResult}."""
    the_task, the_model = RetrievalTask(**task), RetrievalModel(**model)
    layers = train(
        lambda _: the_model.build(the_task.d),
        the_task,
        Training(**training),
        seeds,
        progress=lambda f: progress(0.95 * f),
    )
    result = {}
    for seed, layer in zip(seeds, layers, strict=True):
        assert isinstance(layer, AttentionLayer)
        result[seed] = score_trained(layer, the_task, test_size)
    return to_json(result)


def routing(progress: Progress, *, task: Config, training: Config, seeds: Sequence[int], test_size: int) -> Config:
    """Train one-step attention, freeze it, train routers between it and its converged iteration.

    The result is {features: {seed: RoutingResult}}.
    """
    the_task, the_training = RetrievalTask(**task), Training(**training)
    build = RetrievalModel().build
    trained = train(lambda _: build(the_task.d), the_task, the_training, seeds, progress=lambda f: progress(0.2 * f))
    layers = {seed: layer for seed, layer in zip(seeds, trained, strict=True) if isinstance(layer, AttentionLayer)}
    routers = train(
        lambda seed: Routers(layers[seed]), the_task, the_training, seeds, progress=lambda f: progress(0.2 + 0.7 * f)
    )
    result: Config = {name: {} for name in FEATURES}
    for seed, router in zip(seeds, routers, strict=True):
        assert isinstance(router, Routers)
        for name, found in score_routes(router, the_task, test_size).items():
            result[name][seed] = found
    return to_json(result)


def temperature(
    progress: Progress,
    *,
    task: Config,
    betas: Sequence[float],
    steps: Sequence[int],
    seeds: Sequence[int],
    test_size: int,
) -> Config:
    """Iterate untrained retrieval over beta and steps: a ``TemperatureMap``."""
    return to_json(temperature_map(RetrievalTask(**task), betas, steps, seeds, test_size, progress=progress))


def propositions(progress: Progress, *, seed: int) -> list[Config]:
    """Check every proposition with its counter-case: a list of ``Finding``."""
    from boosted_attention.theory.catalog import CHECKS

    findings = []
    for done, check in enumerate(CHECKS):
        findings.append(to_json(check(seed)))
        progress((done + 1) / len(CHECKS))
    return findings
