"""Training on the task is Adam on fresh samples with a cosine to zero, and nothing else."""

import math

import pytest
import torch

from boosted_attention.retrieval import training as module
from boosted_attention.retrieval.models import FAMILIES, RetrievalModel
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining, evaluate, seeded, train
from boosted_attention.retrieval.training import test_set as draw_test_set

TASK = RetrievalTask(d=8, n_patterns=4, sigma=0.5)
LARGER = RetrievalTask(d=16, n_patterns=4, sigma=0.5)


def by_hand(seed: int, training: RetrievalTraining, betas=(0.9, 0.999), eps=1e-8):
    """The same training written out: samples, mean squared error, Adam's formula, the cosine's."""
    layer = seeded(lambda: RetrievalModel(n_rounds=2).build(TASK.d), seed)
    draw, patterns = torch.Generator().manual_seed(seed), TASK.patterns()
    state = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in layer.named_parameters()}
    for step in range(training.steps):
        index = torch.randint(4, (training.batch,), generator=draw)
        x = patterns[index] + TASK.sigma * torch.randn(training.batch, TASK.d, generator=draw)
        loss = (layer(x[None], memory=patterns[None])[0] - patterns[index]).square().mean()
        gradients = torch.autograd.grad(loss, list(layer.parameters()))
        lr = training.lr * (1 + math.cos(math.pi * step / training.steps)) / 2
        with torch.no_grad():
            for (name, p), g in zip(layer.named_parameters(), gradients, strict=True):
                m, v = state[name]
                m.mul_(betas[0]).add_((1 - betas[0]) * g)
                v.mul_(betas[1]).add_((1 - betas[1]) * g.square())
                scale = math.sqrt(1 - betas[1] ** (step + 1)) / (1 - betas[0] ** (step + 1))
                p -= lr * scale * m / (v.sqrt() + eps * math.sqrt(1 - betas[1] ** (step + 1)))
    return layer


@pytest.mark.parametrize("seeds", [[3], [0, 3]])
def test_weights_are_those_of_a_loop_written_out(seeds):
    training = RetrievalTraining(steps=12, lr=1e-2, batch=32)
    found = train(lambda _: RetrievalModel(n_rounds=2).build(TASK.d), TASK, training, seeds)
    for seed, layer in zip(seeds, found, strict=True):
        expected = by_hand(seed, training)
        for name, weight in layer.named_parameters():
            torch.testing.assert_close(weight, expected.get_parameter(name), rtol=0, atol=2e-5)


def test_progress_goes_to_one_over_all_groups():
    told = []
    training = RetrievalTraining(steps=2, batch=4)
    train(lambda _: RetrievalModel().build(TASK.d), TASK, training, [0, 1], together=False, progress=told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]


def test_all_models_meet_one_test_set_in_which_patterns_are_equally_frequent():
    x, index = module.test_set(TASK, 400)
    again, _ = module.test_set(TASK, 400)
    assert torch.equal(x, again)
    assert index.bincount().tolist() == [100] * 4
    assert (x - TASK.patterns()[index]).std().item() == pytest.approx(0.5, rel=0.03)


@pytest.mark.parametrize("family", FAMILIES)
def test_training_together_equals_training_one_after_the_other(family, full):
    """Weights to 1e-4 and every decision: a seed's result does not depend on its company."""
    task, training = (RetrievalTask(), RetrievalTraining()) if full else (LARGER, RetrievalTraining(steps=30, batch=64))
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
    layers = train(lambda _: model.build(LARGER.d), LARGER, RetrievalTraining(), [0, 1])
    memory = LARGER.patterns()[None]
    found = [evaluate(lambda x, m=m: m(x[None], memory=memory)[0], LARGER, 5000) for m in layers]
    assert all(s.accuracy > 60 for s in found)
    assert found[0] != found[1]


def test_training_leaves_the_global_random_state_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    train(lambda _: RetrievalModel().build(LARGER.d), LARGER, RetrievalTraining(steps=1), [0])
    assert torch.equal(torch.rand(1), expected)


def test_a_seed_is_independent_of_the_others():
    def weights(seeds):
        layers = train(lambda _: RetrievalModel().build(LARGER.d), LARGER, RetrievalTraining(steps=3), seeds)
        return dict(zip(seeds, layers, strict=True))[1].rounds[0].qkv.weight

    torch.testing.assert_close(weights([1]), weights([0, 1, 2]), rtol=0, atol=1e-6)
