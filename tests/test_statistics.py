"""The statistics are honest: intervals cover, identical arms are told apart at the stated rate."""

import numpy as np
import pytest
from scipy import stats

from boosted_attention.statistics import estimate, holm, paired_difference, seeds_needed


def arms(rng, n, effect=0.0, shared=3.0, noise=1.0):
    """Two arms over n seeds: a shared part per seed, noise of their own, and an effect between them."""
    common = shared * rng.standard_normal(n)
    a, b = (dict(enumerate(common + noise * rng.standard_normal(n) + shift)) for shift in (effect, 0.0))
    return a, b


@pytest.mark.parametrize("n", [2, 4, 8, 20])
def test_identical_arms_are_called_different_at_five_percent(n):
    rng, trials = np.random.default_rng(n), 2000
    alarms = sum(not (d.low <= 0 <= d.high) for d in (paired_difference(*arms(rng, n)) for _ in range(trials)))
    low, high = stats.binom.interval(0.99, trials, 0.05)
    assert low <= alarms <= high


@pytest.mark.parametrize("n", [3, 8, 20])
def test_intervals_cover_planted_effects(n):
    rng, trials, effect = np.random.default_rng(n), 4000, 1.7
    found = [paired_difference(*arms(rng, n, effect)) for _ in range(trials)]
    coverage = sum(d.low <= effect <= d.high for d in found) / trials
    assert 0.93 <= coverage <= 0.97


def test_pairing_removes_what_seeds_share():
    rng = np.random.default_rng(0)
    a, b = arms(rng, 20, effect=0.5, shared=50.0, noise=0.1)
    assert paired_difference(a, b).high - paired_difference(a, b).low < 0.3


def test_only_common_seeds_are_paired():
    assert paired_difference({0: 1.0, 1: 5.0}, {0: 3.0, 2: 9.0}).mean == -2.0
    with pytest.raises(ValueError, match="a seed that both sides have"):
        paired_difference({0: 1.0}, {1: 1.0})


def test_estimate_agrees_with_scipy():
    values = [1.0, 2.5, 2.0, 4.0]
    ours, theirs = estimate(values), stats.ttest_1samp(values, 0.0)
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert ours.p == pytest.approx(theirs.pvalue)


def test_one_value_has_no_interval_and_no_test():
    one = estimate([3.0])
    assert (one.mean, one.low, one.high, one.n, one.p) == (3.0, 3.0, 3.0, 1, None)
    with pytest.raises(ValueError, match="at least one value"):
        estimate([])


def test_bootstrap_only_from_thirty_seeds():
    rng = np.random.default_rng(0)
    assert estimate(rng.standard_normal(29).tolist()).bootstrap is None
    many = estimate(rng.standard_normal(60).tolist())
    assert many.bootstrap == pytest.approx((many.low, many.high), abs=0.05)


def test_holm_is_the_textbooks():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_keeps_the_chance_of_any_false_alarm():
    rng, trials = np.random.default_rng(1), 2000
    alarms = sum(min(holm(rng.uniform(size=6))) < 0.05 for _ in range(trials))
    low, high = stats.binom.interval(0.99, trials, 0.05)
    assert low <= alarms <= high


def test_power_is_what_it_says():
    """With the number of seeds it names, a planted effect is seen in about 80 % of trials."""
    n = seeds_needed(effect=1.0, std=1.2)
    assert n is not None
    rng, trials = np.random.default_rng(0), 2000
    seen = sum(estimate(1.0 + 1.2 * rng.standard_normal(n)).p < 0.05 for _ in range(trials)) / trials
    assert 0.77 < seen < 0.88
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(1e-6, 1.0) is None
    assert seeds_needed(1.0, 0.0) == 2
