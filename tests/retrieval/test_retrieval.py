"""The retrieval task: its predictors, and training stacked over seeds."""

import json

import numpy as np
import pytest
import torch

from boosted_attention.records import from_json, to_json
from boosted_attention.retrieval.iteration import (
    TemperatureMap,
    accuracy_after,
    critical_beta,
    fixed_points,
    temperature_map,
)
from boosted_attention.retrieval.models import FAMILIES, RetrievalModel
from boosted_attention.retrieval.predictors import PREDICTORS
from boosted_attention.retrieval.routing import FEATURES, Routers, RoutingResult, score_routes
from boosted_attention.retrieval.scoring import (
    Baselines,
    RetrievalResult,
    round_distances,
    score_baselines,
    score_trained,
)
from boosted_attention.retrieval.task import RetrievalTask, score
from boosted_attention.retrieval.training import RetrievalTraining, evaluate, seeded, test_set, train

TASK = RetrievalTask(d=16, n_patterns=4, sigma=0.5)
draw_test_set = test_set
del test_set  # not a test


def test_patterns_are_the_papers():
    torch.manual_seed(42)
    expected = torch.nn.functional.normalize(torch.randn(4, 16), dim=-1)
    assert torch.equal(TASK.patterns(), expected)
    assert not torch.equal(RetrievalTask(d=16, n_patterns=4, pattern_seed=7).patterns(), expected)


def test_queries_are_a_pattern_and_noise():
    x, index = TASK.sample(200_000, torch.Generator().manual_seed(0))
    noise = x - TASK.patterns()[index]
    assert noise.std().item() == pytest.approx(0.5, rel=0.01)
    assert index.bincount().tolist() == pytest.approx([50_000] * 4, rel=0.03)


@pytest.mark.parametrize(
    ("d", "k", "sigma", "bayes"),
    [
        (16, 4, 0.5, 80.7),
        (16, 4, 0.8, 61.9),
        (32, 8, 0.5, 68.8),
        (32, 8, 0.8, 45.3),
        (64, 16, 0.5, 58.1),
        (64, 16, 0.8, 32.6),
    ],
)
def test_predictors(d, k, sigma, bayes):
    """Bayes is the paper's figure and has the least squared error; the raw query decodes to MAP."""
    task = RetrievalTask(d=d, n_patterns=k, sigma=sigma)
    found = {name: evaluate(make(task), task, 60_000) for name, make in PREDICTORS.items()}
    assert found["bayes"].accuracy == pytest.approx(bayes, abs=0.6)
    assert found["bayes"].mse < min(found[name].mse for name in ("chance", "raw", "map"))
    assert found["raw"].accuracy == found["map"].accuracy
    assert found["map"].accuracy > found["bayes"].accuracy - 0.2
    assert found["chance"].accuracy == pytest.approx(100 / k, abs=1)
    assert found["raw"].mse == pytest.approx(d * sigma**2, rel=0.02)


def test_score():
    patterns = torch.eye(3)
    found = score(torch.tensor([[0.9, 0.0, 0.0], [0.0, 0.0, 1.0]]), torch.tensor([0, 1]), patterns)
    assert found.accuracy == 50.0
    assert found.mse == pytest.approx((0.01 + 2.0) / 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_training_together_equals_training_one_after_the_other(family, full):
    """Weights to 1e-4 and every decision: a seed's result does not depend on its company."""
    task, training = (RetrievalTask(), RetrievalTraining()) if full else (TASK, RetrievalTraining(steps=30, batch=64))
    model = RetrievalModel(family=family, n_rounds=2)
    together, alone = (
        train(lambda _: model.build(task.d), task, training, [0, 1, 5], together=t) for t in (True, False)
    )
    x, _ = draw_test_set(task, 2000)
    memory = task.patterns()[None]
    for a, b in zip(together, alone, strict=True):
        for name, weight in a.named_parameters():
            torch.testing.assert_close(weight, b.get_parameter(name), rtol=0, atol=1e-4)
        decisions = [torch.cdist(m(x[None], memory=memory)[0], memory[0]).argmin(-1) for m in (a, b)]
        assert torch.equal(*decisions)


def test_training_learns_and_seeds_differ():
    model = RetrievalModel(n_rounds=2)
    layers = train(lambda _: model.build(TASK.d), TASK, RetrievalTraining(), [0, 1])
    memory = TASK.patterns()[None]
    found = [evaluate(lambda x, m=m: m(x[None], memory=memory)[0], TASK, 5000) for m in layers]
    assert all(s.accuracy > 60 for s in found)
    assert found[0] != found[1]


def test_training_leaves_the_global_random_state_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    train(lambda _: RetrievalModel().build(TASK.d), TASK, RetrievalTraining(steps=1), [0])
    assert torch.equal(torch.rand(1), expected)


def test_a_seed_is_independent_of_the_others():
    def weights(seeds):
        layers = train(lambda _: RetrievalModel().build(TASK.d), TASK, RetrievalTraining(steps=3), seeds)
        return dict(zip(seeds, layers, strict=True))[1].rounds[0].qkv.weight

    torch.testing.assert_close(weights([1]), weights([0, 1, 2]), rtol=0, atol=1e-6)


def test_routers_train_their_gates_only():
    layers = train(lambda _: RetrievalModel().build(TASK.d), TASK, RetrievalTraining(steps=5), [0, 1])
    before = {name: p.clone() for name, p in layers[0].named_parameters()}
    routers = train(lambda seed: Routers(layers[seed]), TASK, RetrievalTraining(steps=4), [0, 1])
    for name, p in routers[0].one_step.named_parameters():
        assert torch.equal(p, before[name])
    fresh = seeded(lambda: Routers(layers[0]), 0)
    for name in FEATURES:
        assert not torch.equal(routers[0].gates[name][0].weight, fresh.gates[name][0].weight), name


def test_routers_do_not_know_each_other():
    routers, memory = Routers(RetrievalModel().build(TASK.d)), TASK.patterns()[None]
    x, index = draw_test_set(TASK, 50)
    entropy = list(routers.gates["entropy"].parameters())

    def gradients():
        answers = routers(x[None], memory=memory)[0]
        assert answers.shape == (len(FEATURES), 50, TASK.d)
        return torch.autograd.grad((answers - memory[0, index]).square().mean(dim=(-2, -1)).sum(), entropy)

    before = gradients()
    with torch.no_grad():
        for name in FEATURES:
            if name != "entropy":
                for p in routers.gates[name].parameters():
                    p.add_(1.0)
    assert all(torch.equal(a, b) for a, b in zip(before, gradients(), strict=True))


def test_iteration_keeps_the_patterns_above_a_critical_temperature():
    task = RetrievalTask(d=32, n_patterns=8)
    critical = critical_beta(task)
    assert 3.5 < critical < 6.0
    assert fixed_points(task, critical + 0.3) == 8
    assert fixed_points(task, 2.0) == 1
    bayes = evaluate(PREDICTORS["bayes"](task), task, 2000).accuracy
    assert accuracy_after(task, 8.0, 1000, 2000, init="identity") > bayes - 3
    assert accuracy_after(task, 2.0, 1000, 2000, init="identity") < 20


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
def test_distances_by_round(gate):
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
