"""The rules: each at its boundaries."""

import pytest

from boosted_attention.lab.judging.verdicts import Criterion
from boosted_attention.statistics import Estimate, estimate


def spread(low, high, n=8):
    return Estimate(mean=(low + high) / 2, low=low, high=high, std=1.0, n=n, p=0.5)


@pytest.mark.parametrize(
    ("criterion", "ours", "verdict"),
    [
        (Criterion(rule="above"), spread(0.1, 2), "reproduced"),
        (Criterion(rule="above"), spread(-1, 1), "within noise"),
        (Criterion(rule="above"), spread(-2, -1), "contradicted"),
        (Criterion(rule="above"), spread(1, 1, n=1), "within noise"),
        (Criterion(rule="below", target=-10), spread(-12, -11), "reproduced"),
        (Criterion(rule="below", target=-10), spread(-1, 0), "contradicted"),
        (Criterion(rule="equal", margin=1), spread(-0.5, 0.5), "reproduced"),
        (Criterion(rule="equal", margin=1), spread(0.5, 1.5), "within noise"),
        (Criterion(rule="equal", margin=1), spread(1.5, 2.5), "contradicted"),
        (Criterion(rule="number", target=10.0), spread(8.5, 8.9), "reproduced"),
        (Criterion(rule="number", target=12.0), spread(8.5, 8.9), "not reproduced"),
        (Criterion(rule="holds"), spread(1, 1, n=0), "reproduced"),
        (Criterion(rule="holds"), spread(0, 0, n=0), "contradicted"),
    ],
)
def test_verdicts(criterion, ours, verdict):
    assert criterion.judge(ours) == verdict
    assert str(criterion)


def test_noise_agrees_with_nothing():
    wide = estimate([20.0, -40.0])
    assert Criterion(rule="number", target=-6.0).judge(wide) == "within noise"
