"""Work on the retrieval task. Results are keyed by seed: all seeds of a model are one trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.lab.trials.trial import Context, work
from boosted_attention.records import to_json
from boosted_attention.retrieval.iteration import temperature_map
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.pondering import PonderingAttention, score_pondering
from boosted_attention.retrieval.routing import FEATURES, Routers, score_routes
from boosted_attention.retrieval.scoring import score_baselines, score_trained
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining, train
from boosted_attention.retrieval.trees import BoostedTrees, score_trees

Config = dict[str, Any]


@work("retrieval.baselines")
def baselines(context: Context, *, task: Config, test_size: int) -> Config:
    """Score chance, raw query, MAP and Bayes on one test set: a ``Baselines``."""
    return to_json(score_baselines(RetrievalTask(**task), test_size))


@work("retrieval.train")
def train_models(
    context: Context, *, task: Config, model: Config, training: Config, seeds: Sequence[int], test_size: int
) -> Config:
    """Train one model for all seeds and score it: {seed: RetrievalResult}."""
    return trained_and_scored(context, task, model, training, seeds, test_size)


@work("retrieval.train-stagewise")
def train_stagewise(
    context: Context, *, task: Config, model: Config, training: Config, seeds: Sequence[int], test_size: int
) -> Config:
    """Train the rounds of one model one after the other, then all together: {seed: RetrievalResult}."""
    return trained_and_scored(context, task, model, training, seeds, test_size, one_round_at_a_time=True)


def trained_and_scored(
    context: Context,
    task: Config,
    model: Config,
    training: Config,
    seeds: Sequence[int],
    test_size: int,
    *,
    one_round_at_a_time: bool = False,
) -> Config:
    the_task, the_model = RetrievalTask(**task), RetrievalModel(**model)
    layers = train(
        lambda _: the_model.build(the_task.d),
        the_task,
        RetrievalTraining(**training),
        seeds,
        one_round_at_a_time=one_round_at_a_time,
        progress=lambda f: context.progress(0.95 * f),
    )
    result = {}
    for seed, layer in zip(seeds, layers, strict=True):
        assert isinstance(layer, AttentionLayer)
        result[seed] = score_trained(layer, the_task, test_size)
    return to_json(result)


@work("retrieval.ponder")
def ponder(
    context: Context, *, task: Config, model: Config, training: Config, seeds: Sequence[int], test_size: int
) -> Config:
    """Train attention that ponders for all seeds and score it: {seed: PonderResult}."""
    the_task = RetrievalTask(**task)
    models = train(
        lambda _: PonderingAttention(the_task.d, **model),
        the_task,
        RetrievalTraining(**training),
        seeds,
        progress=lambda f: context.progress(0.95 * f),
    )
    result = {}
    for seed, one in zip(seeds, models, strict=True):
        assert isinstance(one, PonderingAttention)
        result[seed] = score_pondering(one, the_task, test_size)
    return to_json(result)


@work("retrieval.trees")
def grow_trees(
    context: Context, *, task: Config, trees: Config, training: Config, seed: int, after: Sequence[int], test_size: int
) -> Config:
    """Fit gradient-boosted trees to the samples of a training and score them: {rounds: Score}."""
    found = score_trees(
        BoostedTrees(**trees),
        RetrievalTask(**task),
        RetrievalTraining(**training),
        seed,
        test_size,
        after,
        progress=context.progress,
    )
    return to_json(found)


@work("retrieval.routing")
def routing(context: Context, *, task: Config, training: Config, seeds: Sequence[int], test_size: int) -> Config:
    """Train one-step attention, freeze it, train routers between it and its converged iteration.

    The result is {features: {seed: RoutingResult}}.
    """
    the_task, the_training = RetrievalTask(**task), RetrievalTraining(**training)
    build = RetrievalModel().build
    trained = train(
        lambda _: build(the_task.d), the_task, the_training, seeds, progress=lambda f: context.progress(0.2 * f)
    )
    layers = {seed: layer for seed, layer in zip(seeds, trained, strict=True) if isinstance(layer, AttentionLayer)}
    routers = train(
        lambda seed: Routers(layers[seed]),
        the_task,
        the_training,
        seeds,
        progress=lambda f: context.progress(0.2 + 0.7 * f),
    )
    result: Config = {name: {} for name in FEATURES}
    for seed, router in zip(seeds, routers, strict=True):
        assert isinstance(router, Routers)
        for name, found in score_routes(router, the_task, test_size).items():
            result[name][seed] = found
    return to_json(result)


@work("retrieval.temperature")
def temperature(
    context: Context,
    *,
    task: Config,
    betas: Sequence[float],
    steps: Sequence[int],
    seeds: Sequence[int],
    test_size: int,
) -> Config:
    """Iterate untrained retrieval over beta and steps: a ``TemperatureMap``."""
    found = temperature_map(RetrievalTask(**task), betas, steps, seeds, test_size, progress=context.progress)
    return to_json(found)
