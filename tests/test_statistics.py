"""The statistics are honest: intervals cover, identical arms are told apart at the stated rate."""

import numpy as np
import pytest
from scipy import stats

from boosted_attention.statistics import (
    Estimate,
    estimate,
    holm,
    p_above,
    p_below,
    p_within,
    paired_difference,
    power_of,
    seeds_needed,
    share,
    smallest_effect,
    t_quantile,
)


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


VALUES = [1.0, 2.5, 2.0, 4.0]


@pytest.mark.parametrize("target", [-1.0, 2.0, 2.375, 3.0])
def test_one_sided_tests_agree_with_scipy(target):
    e = estimate(VALUES)
    for ours, alternative in ((p_above, "greater"), (p_below, "less")):
        assert ours(e, target) == pytest.approx(stats.ttest_1samp(VALUES, target, alternative=alternative).pvalue)


def test_equivalence_is_the_worse_of_two_one_sided_tests():
    e = estimate(VALUES)
    for low, high in ((0.0, 5.0), (2.0, 9.0), (-9.0, 2.5)):
        above = stats.ttest_1samp(VALUES, low, alternative="greater").pvalue
        below = stats.ttest_1samp(VALUES, high, alternative="less").pvalue
        assert p_within(e, low, high) == pytest.approx(max(above, below))


def test_without_spread_there_is_nothing_to_test():
    exact = Estimate(mean=2.0, low=2.0, high=2.0, std=0.0, n=0)
    assert [p_above(exact, target) for target in (1.9, 2.0, 2.1)] == [0.0, 1.0, 1.0]
    assert [p_below(exact, target) for target in (1.9, 2.0, 2.1)] == [1.0, 1.0, 0.0]
    assert [p_within(exact, *bounds) for bounds in ((1.9, 2.1), (2.05, 2.1), (1.9, 1.95))] == [0.0, 1.0, 1.0]
    assert p_above(estimate([3.0]), 1.0) == 0.0


@pytest.mark.parametrize(("percent", "n"), [(58.1, 20_000), (6.25, 300), (99.9, 50), (0.0, 10)])
def test_a_share_has_the_interval_of_a_proportion(percent, n):
    p = percent / 100
    half = 100 * stats.norm.ppf(0.975) * (p * (1 - p) / n) ** 0.5
    found = share(percent, n, "cases")
    assert (found.mean, found.n, found.over) == (percent, n, "cases")
    assert (found.low, found.high) == pytest.approx((max(0.0, percent - half), min(100.0, percent + half)))
    assert found.standard_error == pytest.approx(half / stats.norm.ppf(0.975))


def test_quantiles_and_standard_errors_agree_with_scipy():
    assert [t_quantile(df) for df in (1, 2, 7, 29)] == pytest.approx([stats.t.ppf(0.975, df) for df in (1, 2, 7, 29)])
    assert estimate(VALUES).standard_error == pytest.approx(stats.sem(VALUES))


@pytest.mark.parametrize("n", [3, 5, 8])
@pytest.mark.parametrize("level", [0.05, 0.01])
def test_power_is_that_of_the_noncentral_t(n, level):
    for effect in (0.0, 0.7, -2.0):
        critical = stats.t.ppf(1 - level / 2, n - 1)
        expected = stats.nct.sf(critical, n - 1, abs(effect) / 1.3 * n**0.5)
        assert power_of(effect, 1.3, n, level) == pytest.approx(expected, abs=1e-9)
    assert power_of(0.1, 0.0, n) == 1.0


@pytest.mark.parametrize("n", [3, 5, 8])
def test_the_smallest_effect_is_seen_four_times_of_five(n):
    effect = smallest_effect(1.3, n)
    assert power_of(effect, 1.3, n) == pytest.approx(0.8)
    assert smallest_effect(2.6, n) == pytest.approx(2 * effect)
    assert smallest_effect(1.3, n, power=0.5) < effect
    stricter = smallest_effect(1.3, n, level=0.01)
    assert power_of(stricter, 1.3, n, 0.01) == pytest.approx(0.8)


def test_paired_differences_are_a_minus_b_in_the_order_of_seeds():
    found = paired_difference({2: 9.0, 0: 5.0, 1: 7.0}, {0: 1.0, 1: 4.0, 2: 7.0})
    theirs = stats.ttest_rel([5.0, 7.0, 9.0], [1.0, 4.0, 7.0])
    assert (found.mean, found.n, found.p) == (3.0, 3, pytest.approx(theirs.pvalue))
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
