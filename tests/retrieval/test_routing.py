"""Scores of routers whose gates are known."""

import math

import pytest
import torch

from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.routing import FEATURES, Routers, score_routes
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining, seeded, train
from boosted_attention.retrieval.training import test_set as draw_test_set

TASK = RetrievalTask(d=8, n_patterns=4)


def routers_with(gates: dict[str, float]) -> Routers:
    """Routers whose gates have one value for every query."""
    routers = Routers(RetrievalModel().build(TASK.d))
    with torch.no_grad():
        for name, value in gates.items():
            last = routers.gates[name][2]
            last.weight.zero_()
            last.bias.fill_(math.log(value / (1 - value)))
    return routers


def test_queries_sent_to_one_step_are_those_with_a_gate_above_one_half():
    values = dict(zip(FEATURES, (0.9, 0.1, 0.7, 0.4, 0.6), strict=True))
    found = score_routes(routers_with(values), TASK, 100)
    assert {name: f.chose_one_step for name, f in found.items()} == dict(
        zip(FEATURES, (100, 0, 100, 0, 100), strict=True)
    )
    assert {name: f.weight_on_one_step for name, f in found.items()} == pytest.approx(values)


def test_the_share_is_of_queries():
    routers = routers_with(dict.fromkeys(FEATURES, 0.5))
    x, _ = draw_test_set(TASK, 100)
    with torch.no_grad():
        routers.gates["difference"][2].weight.fill_(5.0)
        routers.gates["difference"][2].bias.zero_()
        _, one, rest = routers.route(x[None], memory=TASK.patterns()[None])
        hidden = routers.gates["difference"][:2](one - rest).sum(dim=-1)
        routers.gates["difference"][2].bias.fill_(-5 * float(hidden.median()))
        gates, _, _ = routers.route(x[None], memory=TASK.patterns()[None])
    above = sum(g > 0.5 for g in gates["difference"].flatten().tolist())
    assert 0 < above < 100
    assert score_routes(routers, TASK, 100)["difference"].chose_one_step == pytest.approx(above)


def test_a_gate_at_either_end_gives_that_answer():
    found = score_routes(routers_with({"outputs": 1 - 1e-7, "entropy": 1e-7}), TASK, 400)
    assert found["outputs"].routed.mse == pytest.approx(found["outputs"].one_step.mse, abs=1e-5)
    assert found["entropy"].routed.mse == pytest.approx(found["entropy"].converged.mse, abs=1e-5)
    assert found["entropy"].one_step.mse != found["entropy"].converged.mse


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
