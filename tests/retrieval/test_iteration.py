"""Iterated retrieval: where the patterns come to rest, and how strongly the update contracts there."""

import pytest
import torch

from boosted_attention.retrieval.iteration import (
    accuracy_after,
    contraction,
    critical_beta,
    ends,
    fixed_points,
    temperature_map,
)
from boosted_attention.retrieval.predictors import PREDICTORS
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import evaluate

TASK = RetrievalTask(d=12, n_patterns=5)


def update(x, beta):
    patterns = TASK.patterns().double()
    return (beta * x @ patterns.T).softmax(-1) @ patterns


def rest(beta, steps=3000):
    x = TASK.patterns().double()
    for _ in range(steps):
        x = update(x, beta)
    return x


@pytest.mark.parametrize("beta", [1.0, 2.5, 6.0])
def test_the_contraction_is_that_of_autograds_jacobian(beta):
    radii = []
    for point in rest(beta):
        jacobian = torch.autograd.functional.jacobian(lambda x: update(x, beta), point)
        radii.append(torch.linalg.eigvals(jacobian).abs().max().item())
    assert contraction(TASK, beta) == pytest.approx(max(radii), rel=1e-3)


@pytest.mark.parametrize("beta", [1.0, 6.0])
def test_patterns_are_carried_to_where_the_iteration_rests(beta):
    torch.testing.assert_close(ends(TASK, beta, 1000).double(), rest(beta), rtol=0, atol=1e-4)


def test_fixed_points_are_one_below_the_critical_beta_and_all_above():
    critical = critical_beta(TASK)
    assert fixed_points(TASK, 1.0) == 1
    assert fixed_points(TASK, critical) == 5 > fixed_points(TASK, critical - 0.05)


def test_a_map_has_its_rows_by_beta_and_its_columns_by_steps():
    """Cold and after one step patterns are kept; hot and after many they are not."""
    told = []
    found = temperature_map(TASK, [1.0, 9.0], [1, 500], [0], 200, progress=told.append)
    assert found.fixed_points == [[5, 1], [5, 5]]
    assert found.identity[0][1] < 40 < min(found.identity[1])
    assert found.contraction == [contraction(TASK, 1.0), contraction(TASK, 9.0)]
    assert told == sorted(told)


def test_iteration_keeps_the_patterns_above_a_critical_temperature():
    task = RetrievalTask(d=32, n_patterns=8)
    critical = critical_beta(task)
    assert 3.5 < critical < 6.0
    assert fixed_points(task, critical + 0.3) == 8
    assert fixed_points(task, 2.0) == 1
    bayes = evaluate(PREDICTORS["bayes"](task), task, 2000).accuracy
    assert accuracy_after(task, 8.0, 1000, 2000, init="identity") > bayes - 3
    assert accuracy_after(task, 2.0, 1000, 2000, init="identity") < 20
