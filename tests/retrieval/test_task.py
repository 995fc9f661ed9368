"""The retrieval task: its patterns, its queries, and how answers are scored."""

import pytest
import torch

from boosted_attention.retrieval.task import RetrievalTask, score

TASK = RetrievalTask(d=16, n_patterns=4, sigma=0.5)


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


def test_the_score_is_of_nearest_patterns_and_squared_distances():
    patterns = torch.eye(3)
    found = score(torch.tensor([[0.9, 0.0, 0.0], [0.0, 0.0, 1.0]]), torch.tensor([0, 1]), patterns)
    assert found.accuracy == 50.0
    assert found.mse == pytest.approx((0.01 + 2.0) / 2)
