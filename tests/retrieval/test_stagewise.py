"""Stagewise training on the retrieval task is a loop over phases, and nothing else."""

import math

import pytest
import torch

from boosted_attention.attention.switch import disable_rounds
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining, seeded, train
from boosted_attention.validation import InputError

TASK = RetrievalTask(d=8, n_patterns=4, sigma=0.5)
MODEL = RetrievalModel(n_rounds=3)
TRAINING = RetrievalTraining(steps=14, lr=1e-2, batch=32)


def by_hand(seed: int):
    """Three rounds, each trained alone, then all: 3, 4, 3 and 4 of 14 steps."""
    layer = seeded(lambda: MODEL.build(TASK.d), seed)
    draw, patterns = torch.Generator().manual_seed(seed), TASK.patterns()
    own = [["rounds.0."], ["rounds.1.", "gates.0."], ["rounds.2.", "gates.1."], ["rounds.", "gates."]]
    for number, (steps, names) in enumerate(zip((3, 4, 3, 4), own, strict=True)):
        chosen = [p for name, p in layer.named_parameters() if name.startswith(tuple(names))]
        optimizer = torch.optim.Adam(chosen, lr=TRAINING.lr)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = TRAINING.lr * (1 + math.cos(math.pi * step / steps)) / 2
            x, index = TASK.sample(TRAINING.batch, draw)
            with disable_rounds(layer, rounds=range(number + 1, 3)):
                loss = (layer(x[None], memory=patterns[None])[0] - patterns[index]).square().mean()
            for p, g in zip(chosen, torch.autograd.grad(loss, chosen), strict=True):
                p.grad = g
            optimizer.step()
    return layer


@pytest.mark.parametrize("seeds", [[3], [0, 3]])
def test_weights_are_those_of_a_loop_written_out(seeds):
    found = train(lambda _: MODEL.build(TASK.d), TASK, TRAINING, seeds, one_round_at_a_time=True)
    for seed, layer in zip(seeds, found, strict=True):
        assert layer.disabled == frozenset()
        assert all(p.requires_grad for p in layer.parameters())
        expected = by_hand(seed)
        for name, weight in layer.named_parameters():
            torch.testing.assert_close(weight, expected.get_parameter(name), rtol=0, atol=2e-5)


def test_progress_counts_all_phases():
    told = []
    train(lambda _: MODEL.build(8), TASK, TRAINING, [0], one_round_at_a_time=True, progress=told.append)
    assert told == pytest.approx([(i + 1) / 14 for i in range(14)])


def test_one_round_has_no_stages():
    with pytest.raises(InputError, match="stagewise=True needs correction rounds"):
        train(lambda _: RetrievalModel().build(8), TASK, TRAINING, [0], one_round_at_a_time=True)
