"""Error rates: what docs/judging.md shows is what the rules do."""

from pathlib import Path

import pytest

from boosted_attention.lab.judging import error_rates
from boosted_attention.lab.judging.verdicts import CANNOT_TELL, CONTRADICTED, NOT_REPRODUCED, REPRODUCED

PAGE = Path(__file__).parents[3] / "docs" / "judging.md"


def shown(rates):
    return " | ".join(f"{100 * rate:.1f} %" for rate in rates)


def test_the_page_shows_what_the_rules_do(full):
    """All of it in the full run; otherwise a few lines, each recomputed."""
    text = PAGE.read_text()
    if full:
        assert error_rates.error_rates() in text
        return
    case, noise = error_rates.CASES[0], error_rates.NOISES["normal"]
    rates = [error_rates.family_rate(case, noise, 3, n) for n in error_rates.SEEDS]
    assert f"| reproduced | one difference is zero | 3 | normal | {shown(rates)} |" in text
    judged = [error_rates.judged_numbers(NOT_REPRODUCED, 3.0, noise, n, 1) for n in error_rates.SEEDS]
    truth = "the number is the paper's, 3 apart, 1 run of the paper's"
    for size in error_rates.FAMILIES:
        rates = [error_rates.number_rate(own, NOT_REPRODUCED, size) for own in judged]
        assert f"| not reproduced | {truth} | {size} | normal | {shown(rates)} |" in text


def wrong():
    """(verdict, truth, parts, rates in percent) of every row of wrong verdicts."""
    lines = [line.split(" | ") for line in PAGE.read_text().split("Right ones")[0].splitlines() if " % |" in line]
    for verdict, truth, parts, _, *cells in lines:
        yield verdict.removeprefix("| "), truth, int(parts), [float(cell.strip(" %|")) for cell in cells]


def test_facts_and_controls_are_wrong_in_at_most_five_of_a_hundred_families():
    rows = [row for row in wrong() if not row[1].startswith("the number")]
    assert len(rows) == 3 * 3 * len(error_rates.CASES)
    assert sum(truth.startswith("any control") for _, truth, _, _ in rows) == 18
    assert {verdict for verdict, *_ in rows} == {REPRODUCED, CONTRADICTED}
    assert max(max(rates) for *_, rates in rows) <= 5.0


def test_a_number_is_wrong_as_often_as_the_page_says():
    """By itself, and as any one of several, since numbers are judged one by one."""
    rows = [row for row in wrong() if row[1].startswith("the number")]
    assert len(rows) == 24 * len(error_rates.FAMILIES)
    most = {size: max(max(rates) for *_, parts, rates in rows if parts == size) for size in error_rates.FAMILIES}
    text = " ".join(PAGE.read_text().split())
    assert f"reaches up to {most[1]:.1f} %" in text
    assert "one in twenty true ones fails by chance" in text
    for size, rate in most.items():
        assert rate <= 100 * (1 - (1 - most[1] / 100) ** size) + 1.0
    assert all(max(rates) <= 5.0 for verdict, *_, rates in rows if verdict == REPRODUCED)


def test_a_family_of_numbers_is_wrong_if_any_of_them_is():
    judged = [REPRODUCED, NOT_REPRODUCED, REPRODUCED, REPRODUCED, REPRODUCED, REPRODUCED, NOT_REPRODUCED]
    assert error_rates.number_rate(judged, NOT_REPRODUCED) == 2 / 7
    assert error_rates.number_rate(judged, NOT_REPRODUCED, 3) == 1 / 2  # the last one is of no whole family
    assert error_rates.number_rate(judged, CANNOT_TELL, 3) == 0.0


def test_one_control_is_enough_to_be_wrong_and_a_fact_needs_them_all():
    by_truth = {(case.verdict, case.truth): case for case in error_rates.CASES}
    control = by_truth[CONTRADICTED, "any control, all differences are barely above zero"]
    fact = by_truth[CONTRADICTED, "all differences are barely above zero, one part is enough"]
    rates = [error_rates.family_rate(case, error_rates.normal, 3, 5, draws=400) for case in (control, fact)]
    assert rates[0] > rates[1]
    assert rates[0] <= 0.05


@pytest.mark.parametrize("noise", error_rates.NOISES)
def test_the_rival_is_not_taken_for_the_paper(noise):
    judged = error_rates.judged_numbers(REPRODUCED, 3.0, error_rates.NOISES[noise], 5, 1, draws=500)
    assert error_rates.number_rate(judged, REPRODUCED) <= 0.01
