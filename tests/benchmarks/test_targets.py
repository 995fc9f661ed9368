"""The table of targets follows from the numbers alone."""

import pytest

from benchmarks.sections.steps import PRODUCT, run_name
from benchmarks.targets import Target, fairness, targets, worst
from tests.benchmarks.made import made_results, made_steps


@pytest.mark.parametrize("good", [True, False])
def test_every_target_is_reached_or_missed_as_the_numbers_say(good):
    found = targets(made_results(good))
    assert len(found) == 18
    assert [target.what for target in found if target.reached is not good] == []


@pytest.mark.parametrize("good", [True, False])
def test_the_plain_model_is_fair_where_it_is_as_fast_as_gpt2(good):
    verdicts = fairness(made_steps(good).settings[0])
    assert [verdict.reached for verdict in verdicts] == [good, good]
    assert [verdict.measured for verdict in verdicts] == pytest.approx([0.0] * 2 if good else [1 - 1.1 / 1.4] * 2)


def test_of_several_cases_the_worst_counts():
    cases = {"a": 1.0, "b": 1.2, "c": 1.1}
    assert worst("x", 1.15, cases, at_most=True).case == "b"
    assert worst("x", 1.15, cases).case == "a"


def test_a_limit_itself_is_reached():
    assert Target(what="x", limit=1.0, measured=1.0).reached
    assert Target(what="x", limit=1.0, measured=1.0, at_most=True).reached


def test_shares_and_prices_are_ratios_within_a_turn():
    at = made_steps(True).settings[0]
    slow = at.models.seconds[run_name("ours, boosted", 0.0)]
    assert slow[1] == 2 * slow[0]
    assert at.models.seconds[PRODUCT][1] == 2 * at.models.seconds[PRODUCT][0]
    share, price = at.share("boosted", 0.0), at.price("boosted", 0.1)
    assert (share.low, share.median, share.high) == pytest.approx((0.8, 0.8, 0.8))
    assert (price.low, price.high) == pytest.approx((1.0, 1.0))


def test_a_section_that_was_not_measured_has_no_target():
    results = made_results(True)
    del results.sections["steps"]
    assert len(targets(results)) == 8
