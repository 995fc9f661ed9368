"""Gradient-boosted trees: on the samples of a training, scored as models are."""

import sys

import pytest
import torch

from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining, train
from boosted_attention.retrieval.trees import BoostedTrees, all_samples, score_trees
from boosted_attention.validation import InputError

TASK = RetrievalTask(d=3, n_patterns=3, sigma=0.1)
TRAINING = RetrievalTraining(steps=8, batch=64)


def test_samples_are_those_that_a_model_of_the_seed_is_shown():
    shown = []

    class Watching(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def forward(self, x, memory):
            shown.append(x.detach()[0])
            return self.weight * x

    train(lambda _: Watching(), TASK, TRAINING, [5])
    x, y = all_samples(TASK, TRAINING, 5)
    assert torch.equal(x, torch.cat(shown))
    assert (x - y).std().item() == pytest.approx(0.1, rel=0.05)
    assert {tuple(row) for row in y.tolist()} == {tuple(row) for row in TASK.patterns().tolist()}


def test_rounds_come_nearer_to_the_patterns():
    pytest.importorskip("sklearn")
    told = []
    found = score_trees(BoostedTrees(n_rounds=8), TASK, TRAINING, 0, 300, [1, 4, 8], progress=told.append)
    assert told == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert list(found) == [1, 4, 8]
    errors = [score.mse for score in found.values()]
    assert errors == sorted(errors, reverse=True)
    assert found[8].accuracy > 95
    again = score_trees(BoostedTrees(n_rounds=8), TASK, TRAINING, 0, 300, [8])
    assert again[8] == found[8]


def test_one_deep_round_without_shrinkage_is_a_tree_of_means():
    """With two patterns far apart a single tree finds both, whatever the dimension."""
    pytest.importorskip("sklearn")
    task = RetrievalTask(d=2, n_patterns=2, sigma=1e-3)
    deep = BoostedTrees(n_rounds=1, max_leaves=None, shrinkage=1.0)
    (score,) = score_trees(deep, task, TRAINING, 0, 100, [1]).values()
    assert score.accuracy == 100.0
    assert score.mse == pytest.approx(0.0, abs=1e-9)


def test_rounds_that_there_are_not_are_refused():
    pytest.importorskip("sklearn")
    with pytest.raises(InputError, match=r"after=\(1, 9\) must lie in 1 to n_rounds=8"):
        score_trees(BoostedTrees(n_rounds=8), TASK, TRAINING, 0, 30, [1, 9])


def test_without_scikit_learn_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(InputError, match=r"trees need scikit-learn: pip install 'boosted-attention\[trees\]'"):
        score_trees(BoostedTrees(), TASK, TRAINING, 0, 30, [1])
