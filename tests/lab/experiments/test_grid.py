"""Grids of learning rates: which factor is taken, and how a grid grows until the best lies inside."""

import pytest

from boosted_attention.lab.experiments._grid import LARGEST_GRID, best_factor, described, extension, grown, is_inside

SMALLER = [2.0**i for i in range(2, 2 - LARGEST_GRID, -1)]


@pytest.mark.parametrize(
    ("points", "best", "inside"),
    [
        ({0.5: 40.0, 1.0: 36.0, 2.0: 38.0}, 1.0, True),
        ({0.5: 36.1, 1.0: 36.0, 2.0: 38.0}, 0.5, True),  # within 0.5 %: the smaller rate
        ({0.5: 36.2, 1.0: 36.0, 2.0: 38.0}, 1.0, True),
        ({0.5: 40.0, 1.0: 36.0, 2.0: 36.1}, 1.0, True),
        ({0.5: 40.0, 1.0: 36.0, 2.0: None}, 1.0, True),  # diverged is worst
        ({0.5: 40.0, 1.0: 36.0, 2.0: 34.0}, 2.0, False),
        ({0.5: 30.0, 1.0: 36.0, 2.0: None}, 0.5, False),
        ({0.5: None, 1.0: None, 2.0: None}, None, False),
    ],
)
def test_the_best_factor(points, best, inside):
    assert best_factor(points) == best
    assert is_inside(points) == inside


def test_a_grid_is_described_with_every_rate_and_the_one_taken():
    rule = "(of two within 0.5 % the smaller)"
    assert described({2.0: None, 0.5: 36.1, 1.0: 36.0}) == f"x 0.5 36.100, x 1 36.000, x 2 diverged; taken x 0.5 {rule}"
    found = described({1.0: 9.0, 3.0: 8.0}, lambda factor: f"{factor * 2:g}")
    assert found == f"2 9.000, 6 8.000; taken 6, at the edge of the grid {rule}"


@pytest.mark.parametrize(
    ("points", "factor"),
    [
        ({0.5: 40.0, 1.0: 36.0, 2.0: 38.0}, None),
        ({0.5: 40.0, 1.0: 36.0, 2.0: 35.0}, 4.0),
        ({0.5: 34.0, 1.0: 36.0, 2.0: 35.0}, 0.25),
        ({0.5: 34.0, 1.0: None, 2.0: None}, 0.25),
        ({0.5: None, 1.0: None, 2.0: None}, 0.25),
        ({2.0**i: 9.0 - i for i in range(LARGEST_GRID)}, None),  # long enough
        ({2.0**i: 9.0 - i for i in range(LARGEST_GRID - 1)}, 2.0 ** (LARGEST_GRID - 1)),
    ],
)
def test_a_grid_grows_beyond_the_edge_at_which_the_best_lies(points, factor):
    assert extension(points, 2.0) == factor


def test_a_grid_grows_by_its_own_step():
    assert extension({1.0: 40.0, 3.0: 36.0, 9.0: 35.0}, 3.0) == 27.0
    assert extension({1.0: 34.0, 3.0: 36.0, 9.0: 35.0}, 3.0) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("known", "tried", "best"),
    [
        ({1.0: 4.0, 2.0: 3.0}, (1.0, 2.0, 4.0), None),  # one is still to come
        ({1.0: 4.0, 2.0: 3.0, 4.0: 5.0}, (1.0, 2.0, 4.0), 2.0),
        ({1.0: 4.0, 2.0: 3.0, 4.0: 2.0}, (1.0, 2.0, 4.0, 8.0), None),
        ({1.0: 4.0, 2.0: 3.0, 4.0: 2.0, 8.0: 3.0}, (1.0, 2.0, 4.0, 8.0), 4.0),
        (dict.fromkeys(SMALLER), tuple(sorted(SMALLER)), min(SMALLER)),  # which diverges too, and is shown
    ],
)
def test_factors_are_tried_until_the_best_lies_inside(known, tried, best):
    assert grown((1.0, 2.0, 4.0), lambda factors: {f: known[f] for f in factors}, 2.0) == (tried, best)
