"""The rules: each at its boundaries."""

import math

import pytest
from scipy import stats

from boosted_attention.lab.judging.verdicts import (
    CANNOT_TELL,
    HOLDS,
    NOT_REPRODUCED,
    OPEN,
    REPRODUCED,
    SHOWN,
    Criterion,
    above,
    below,
    digits,
    equal,
    number,
)
from boosted_attention.statistics import Estimate, estimate


def seeds(mean, std=1.0, n=8):
    return Estimate(mean=mean, low=mean - 1, high=mean + 1, std=std, n=n)


def figure(paper, rival=0.0, runs=1):
    made = number(rival=rival, runs=runs)
    return Criterion(rule=made.rule, target=paper, rival=made.rival, runs=made.runs)


@pytest.mark.parametrize(("n", "runs"), [(3, 1), (8, 1), (8, 2), (5, None)])
def test_a_number_may_differ_by_the_noise_of_both_and_no_more(n, runs):
    half = stats.t.ppf(0.975, n - 1) * math.sqrt(1 / n + 1 / (n if runs is None else runs))
    criterion = figure(100.0, runs=runs)
    assert criterion.half_width(seeds(0.0, n=n)) == pytest.approx(half, rel=1e-12)
    assert criterion.judge(seeds(100.0 + 0.999 * half, n=n)) == REPRODUCED
    assert criterion.judge(seeds(100.0 - 0.999 * half, n=n)) == REPRODUCED
    assert criterion.judge(seeds(100.0 + 1.001 * half, n=n)) == NOT_REPRODUCED
    assert criterion.judge(seeds(100.0 - 1.001 * half, n=n)) == NOT_REPRODUCED


def test_a_number_must_be_told_from_its_rival():
    half = figure(1.0).half_width(seeds(0.0))
    for paper, rival in ((2 * half, 0.0), (-2 * half, 0.0), (50 + 2 * half, 50.0)):
        farther = rival + 1.001 * (paper - rival)
        nearer = rival + 0.999 * (paper - rival)
        assert figure(farther, rival).judge(seeds(farther)) == REPRODUCED
        assert figure(nearer, rival).judge(seeds(nearer)) == CANNOT_TELL


def test_noise_agrees_with_nothing():
    assert figure(-6.0).judge(estimate([20.0, -40.0, 3.0])) == CANNOT_TELL


def test_fewer_than_three_seeds_decide_nothing():
    for n in (1, 2):
        assert figure(100.0).judge(seeds(100.0, std=0.001, n=n)) == CANNOT_TELL
        assert above().test(seeds(100.0, std=0.001, n=n)) is None
        assert "at least 3 are needed" in above().limit(seeds(1.0, n=n))
    assert figure(100.0).judge(seeds(100.0, std=0.001, n=3)) == REPRODUCED
    assert above().test(seeds(100.0, std=0.001, n=3)) is not None


def test_a_number_without_randomness_rounds_to_the_papers():
    criterion = Criterion(rule=digits(1).rule, target=8.7, decimals=1)
    exact = {"low": 0.0, "high": 0.0, "std": 0.0, "n": 0}
    assert criterion.judge(Estimate(mean=8.734, **exact)) == REPRODUCED
    assert criterion.judge(Estimate(mean=8.76, **exact)) == NOT_REPRODUCED
    assert criterion.judge(Estimate(mean=8.64, **exact)) == NOT_REPRODUCED
    with pytest.raises(AssertionError, match="judged by its digits"):
        figure(8.7).judge(Estimate(mean=8.7, **exact))


def test_directions_are_two_sided_t_tests():
    values = [0.3, 1.1, -0.2, 0.9, 0.6]
    p = stats.ttest_1samp(values, 0.25).pvalue
    higher, lower = above(0.25).test(estimate(values)), below(0.25).test(estimate(values))
    assert higher is not None
    assert lower is not None
    assert higher.supports == pytest.approx(p)
    assert lower.opposes == pytest.approx(p)
    assert higher.opposes == lower.supports == 1.0


def test_equivalence_is_the_whole_interval_within_the_margin():
    e = estimate([0.3, 1.1, -0.2, 0.9, 0.6])
    for target in (0.0, 0.5):
        reach = max(abs(e.low - target), abs(e.high - target))
        inside, outside = (equal(target, factor * reach).test(e) for factor in (1.001, 0.999))
        assert inside is not None
        assert outside is not None
        assert inside.supports < 0.05 < outside.supports
        assert equal(target, 1.0).limit(e).endswith(f"confirm a margin of {reach:.3g}")


def test_equivalence_is_opposed_by_a_mean_beyond_the_margin():
    for mean in (5.0, -5.0):
        p = equal(0.0, 1.0).test(seeds(mean))
        assert p is not None
        assert p.opposes == pytest.approx(2 * stats.t.sf(4 * math.sqrt(8), 7))
        assert p.supports == 1.0
    inside = equal(0.0, 1.0).test(seeds(0.5))
    assert inside is not None
    assert inside.opposes == 1.0


def test_without_spread_a_test_is_decided_outright():
    exact = estimate([2.0, 2.0, 2.0])
    for criterion, supports, opposes in (
        (above(1.0), 0.0, 1.0),
        (above(2.0), 1.0, 1.0),
        (above(3.0), 1.0, 0.0),
        (below(3.0), 0.0, 1.0),
        (equal(2.0, 0.5), 0.0, 1.0),
        (equal(0.0, 0.5), 1.0, 0.0),
    ):
        p = criterion.test(exact)
        assert p is not None
        assert (p.supports, p.opposes) == (supports, opposes), criterion


def test_a_check_holds_or_does_not():
    for value, supports in ((1.0, 0.0), (0.0, 1.0)):
        p = HOLDS.test(Estimate(mean=value, low=value, high=value, std=0.0, n=0))
        assert p is not None
        assert (p.supports, p.opposes) == (supports, 1.0 - supports)


def test_an_open_question_gets_no_verdict():
    assert SHOWN.judge(seeds(1.0)) == SHOWN.judge(seeds(1.0, n=2)) == OPEN


def test_limits_name_the_smallest_effect():
    wide = seeds(0.0, std=2.0)
    assert (
        figure(1.0).limit(wide) == f"8 seeds tell figures apart that differ by {2 * figure(1.0).half_width(wide):.3g}"
    )
    assert above().limit(wide) == "8 seeds show an effect of 2.31 in four cases of five"


@pytest.mark.parametrize("level", [0.05, 0.05 / 3, 0.01])
def test_what_could_have_been_shown_is_what_the_level_allows(level):
    """Beyond the smallest margin or effect a test passes at the level, and short of it it does not."""
    e = estimate([0.3, 1.1, -0.2, 0.9, 0.6])
    reach = equal(0.2, 1.0).smallest(e, level)
    inside, outside = (equal(0.2, factor * reach).test(e) for factor in (1.001, 0.999))
    assert inside is not None
    assert outside is not None
    assert inside.supports < level < outside.supports
    effect = above().smallest(e, level)
    critical = stats.t.ppf(1 - level / 2, e.n - 1)
    assert stats.nct.sf(critical, e.n - 1, effect / e.standard_error) == pytest.approx(0.8)
    told = f"5 seeds show an effect of {effect:.3g} in four cases of five"
    assert above().limit(e, level) == told + ("" if level == 0.05 else f", at a level of {100 * level:.2g} %")


def test_rules_are_said_in_words():
    for criterion in (above(1.0), below(-10.0), equal(100.0, 1.0), HOLDS, SHOWN, digits(1), figure(9.5, 46.0, 2)):
        assert str(criterion)
    assert str(figure(9.5, 46.0, 2)).endswith("from 46, which is of two runs")
