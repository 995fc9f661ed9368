"""Scores of trained models and of predictors: stored, read back, and by round."""

import json

import numpy as np
import pytest
import torch

from boosted_attention.records import from_json, to_json
from boosted_attention.retrieval.iteration import TemperatureMap, temperature_map
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.predictors import PREDICTORS
from boosted_attention.retrieval.routing import FEATURES, Routers, RoutingResult, score_routes
from boosted_attention.retrieval.scoring import (
    Baselines,
    RetrievalResult,
    round_distances,
    score_baselines,
    score_trained,
)
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining, seeded, train
from boosted_attention.retrieval.training import test_set as draw_test_set

TASK = RetrievalTask(d=16, n_patterns=4, sigma=0.5)


def test_results_can_be_stored_and_read_back():
    """What runs store: scores of predictors, of a trained model with its rounds, of routers, and a map."""
    training = RetrievalTraining(steps=2, batch=16)
    (layer,) = train(lambda _: RetrievalModel(n_rounds=2).build(TASK.d), TASK, training, [0])
    (one_step,) = train(lambda _: RetrievalModel().build(TASK.d), TASK, training, [0])
    baselines = score_baselines(TASK, 100)
    trained = {7: score_trained(layer, TASK, 100)}
    routes = score_routes(Routers(one_step), TASK, 100)
    temperatures = temperature_map(TASK, [2.0, 8.0], [1, 20], [0, 1], 100)
    for kind, found in (
        (Baselines, baselines),
        (dict[int, RetrievalResult], trained),
        (dict[str, RoutingResult], routes),
        (TemperatureMap, temperatures),
    ):
        assert from_json(kind, json.loads(json.dumps(to_json(found)))) == found
    assert set(to_json(baselines)) == set(PREDICTORS)
    assert to_json(trained)["7"]["rounds"][0]["gate"] is None  # written, though round 0 has none
    assert set(routes) == set(FEATURES)
    assert np.shape(temperatures.identity) == np.shape(temperatures.fixed_points) == (2, 2)
    assert set(temperatures.default[0][0]) == {0, 1}


@pytest.mark.parametrize("gate", ["vector", "scalar", "none"])
def test_distances_by_round_end_at_the_answers(gate):
    layer = seeded(lambda: RetrievalModel(n_rounds=3, gate=gate).build(TASK.d), 0)
    first, second, third = round_distances(layer, TASK)
    x, index = draw_test_set(TASK, 2048)
    with torch.no_grad():
        answers = layer(x[None], memory=TASK.patterns()[None])[0]
    assert third.to_query == pytest.approx(float((x - answers).norm(dim=-1).mean()), rel=1e-5)
    assert third.to_pattern == pytest.approx(float((TASK.patterns()[index] - answers).norm(dim=-1).mean()), rel=1e-5)
    assert first.gate is None
    expected = {"scalar": 0.5, "none": 1.0}
    if gate in expected:
        assert second.gate == third.gate == expected[gate]
    else:
        assert 0 < second.gate < 1
