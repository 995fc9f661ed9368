"""The checks hold at any seed, can fail, and stand on an exact hull distance."""

import numpy as np
import pytest
from scipy.optimize import minimize

from boosted_attention.analysis.hull import hull_distance
from boosted_attention.theory import erasure
from boosted_attention.theory.catalog import CHECKS

COSTLY = {"contraction_erases_within_a_region", "residual_is_the_gradient", "bayes_is_a_layer"}


def pytest_generate_tests(metafunc):
    if metafunc.function is test_every_check_holds_with_its_limit:
        full = metafunc.config.getoption("--full")
        checks = [check for check in CHECKS if full or check.__name__ not in COSTLY]
        metafunc.parametrize("check", checks, ids=lambda check: check.__name__)
        metafunc.parametrize("seed", range(1, 8) if full else range(1, 4))


def test_every_check_holds_with_its_limit(check, seed):
    finding = check(seed)
    assert finding.holds, finding
    assert finding.counter_holds, finding
    assert finding.measured
    assert finding.counter


def test_names_are_distinct():
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS) == 17


def test_a_wrong_update_would_be_found(monkeypatch):
    monkeypatch.setattr(erasure, "retrieve", lambda x, patterns, beta: x)
    assert not erasure.stays_in_hull(0).holds
    assert not erasure.forgets_the_orthogonal_part(0).holds


def simplex_distance(y, points):
    n = len(points)
    found = minimize(
        lambda w: np.sum((points.T @ w - y) ** 2),
        np.full(n, 1 / n),
        jac=lambda w: 2 * points @ (points.T @ w - y),
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"maxiter": 500, "ftol": 1e-14},
    )
    return np.sqrt(found.fun)


@pytest.mark.parametrize(("n", "d"), [(1, 3), (5, 3), (8, 16), (40, 16)])
def test_hull_distance_is_exact(n, d):
    rng = np.random.default_rng(n)
    points = rng.standard_normal((n, d))
    for scale in (0.1, 1.0, 10.0):
        y = scale * rng.standard_normal(d)
        distance, gap = hull_distance(y, points)
        assert abs(gap) < 1e-10 * max(1.0, scale**2)
        assert distance == pytest.approx(simplex_distance(y, points), abs=2e-3)
    weights = rng.dirichlet(np.ones(n))
    assert hull_distance(weights @ points, points)[0] < 1e-10
    assert hull_distance(points[0] + 5.0, points[:1])[0] == pytest.approx(5.0 * np.sqrt(d))


def test_hull_of_a_segment():
    points = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert hull_distance(np.array([0.5, 2.0]), points)[0] == pytest.approx(2.0)
    assert hull_distance(np.array([3.0, 0.0]), points)[0] == pytest.approx(2.0)
    assert hull_distance(np.array([0.25, 0.0]), points)[0] < 1e-12
