"""Judging: families, places, and facts that follow from their parts."""

from dataclasses import replace

import pytest
from scipy import stats

from boosted_attention.lab.judging.claim import Role
from boosted_attention.lab.judging.facts import BEATS_STANDARD, FACTS, SIZE
from boosted_attention.lab.judging.judge import decide, fact_verdict, judge
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.verdicts import (
    CANNOT_TELL,
    CONTRADICTED,
    FAILED,
    HOLDS,
    NOT_REPRODUCED,
    NOT_RUN,
    OPEN,
    REPRODUCED,
    SHOWN,
    PValues,
    below,
    number,
)
from boosted_attention.statistics import power_of
from tests.lab.judging.made import ANY, PAPERS, SMALL, named, seeds, table_of

TEXT = SMALL.text


def p(supports=1.0, opposes=1.0):
    return PValues(supports=supports, opposes=opposes)


def verdicts_of(claims, table):
    return {row.claim.id: row.verdict for row in judge(claims, {"made": table}).rows}


def fact_of(claims, table, fact=BEATS_STANDARD):
    return [(str(f.place), f.verdict) for f in judge(claims, {"made": table}).facts if f.fact is fact]


def test_a_part_supports_alone_and_opposes_after_the_correction():
    family = [p(supports=0.04), p(opposes=0.02), p(opposes=0.04)]
    assert decide(family, alone=True) == [REPRODUCED, CANNOT_TELL, CANNOT_TELL]  # 3 * 0.02 is more than 0.05
    assert decide([p(opposes=0.016), p(opposes=0.9)], alone=True) == [CONTRADICTED, CANNOT_TELL]


def test_where_one_part_is_enough_it_must_survive_the_correction():
    assert decide([p(supports=0.02), p(), p()], alone=False) == [CANNOT_TELL] * 3
    assert decide([p(supports=0.016), p(), p()], alone=False) == [REPRODUCED, CANNOT_TELL, CANNOT_TELL]


def test_the_level_itself_decides_nothing():
    assert decide([p(supports=0.05)], alone=True) == [CANNOT_TELL]
    assert decide([p(opposes=0.05)], alone=True) == [CANNOT_TELL]


@pytest.mark.parametrize(
    ("parts", "all_needed", "one_needed"),
    [
        ([REPRODUCED, REPRODUCED], REPRODUCED, REPRODUCED),
        ([REPRODUCED, CANNOT_TELL], CANNOT_TELL, REPRODUCED),
        ([REPRODUCED, CONTRADICTED], CONTRADICTED, REPRODUCED),
        ([CONTRADICTED, CONTRADICTED], CONTRADICTED, CONTRADICTED),
        ([CONTRADICTED, CANNOT_TELL], CONTRADICTED, CANNOT_TELL),
        ([REPRODUCED, FAILED], FAILED, REPRODUCED),
        ([CONTRADICTED, FAILED], CONTRADICTED, CANNOT_TELL),
        ([REPRODUCED, NOT_RUN], CANNOT_TELL, REPRODUCED),
        ([OPEN], OPEN, CANNOT_TELL),
        ([FAILED, FAILED], FAILED, FAILED),
        ([FAILED, NOT_RUN], FAILED, FAILED),
        ([CONTRADICTED, NOT_RUN], CONTRADICTED, CONTRADICTED),
        ([CANNOT_TELL, NOT_RUN], CANNOT_TELL, CANNOT_TELL),
        ([NOT_RUN, NOT_RUN], CANNOT_TELL, NOT_RUN),
    ],
)
def test_a_fact_follows_from_its_parts(parts, all_needed, one_needed):
    assert fact_verdict(parts, needs_all=True) == all_needed
    assert fact_verdict(parts, needs_all=False) == one_needed


def test_the_family_is_the_parts_of_one_fact_at_one_place():
    """0.02 the other way contradicts alone, and not as one of three; controls and asides are no part of it."""
    claims = [named("a"), named("b"), named("c"), named("side", role=Role.ASIDE)]
    weak = seeds(1.05)  # p = 0.0209 of being above zero
    alone = table_of({Quantity("a", text=TEXT): weak, Quantity("side", text=TEXT): weak})
    assert verdicts_of([claims[0], claims[3]], alone) == {"a": CONTRADICTED, "side": CONTRADICTED}
    together = table_of({Quantity(name, text=TEXT): weak for name in "abc"} | {Quantity("side", text=TEXT): weak})
    assert verdicts_of(claims, together) == {"a": CANNOT_TELL, "b": CANNOT_TELL, "c": CANNOT_TELL, "side": CONTRADICTED}


def test_controls_are_a_family_of_their_own():
    claims = [named("part"), *(named(f"control-{i}", role=Role.CONTROL) for i in range(3))]
    good = seeds(-1.05)
    found = verdicts_of(claims, table_of({Quantity(c.id, text=TEXT): good for c in claims}))
    assert found == {"part": REPRODUCED} | {f"control-{i}": CANNOT_TELL for i in range(3)}


def test_every_text_is_a_place_of_its_own():
    table = table_of(
        {Quantity("a", text=TEXT): seeds(5.0), Quantity("a", text=PAPERS.text): seeds(-5.0)}, SMALL, PAPERS
    )
    rows = judge([named("a")], {"made": table}).rows
    assert [(row.place, row.verdict) for row in rows] == [(SMALL, CONTRADICTED), (PAPERS, REPRODUCED)]
    assert fact_of([named("a")], table) == [("wikitext-2, 0.4 M", CONTRADICTED), ("wikitext-103, 8.7 M", REPRODUCED)]


def test_a_number_is_judged_on_its_text_at_the_papers_size_only():
    figure = named("size", Quantity("a", -6.0, text=PAPERS.text), number())
    small = table_of({Quantity("a", text=TEXT): seeds(-6.0, 0.1)}, SMALL)
    assert [(row.place, row.verdict) for row in judge([figure], {"made": small}).rows] == [(None, NOT_RUN)]
    own = table_of({Quantity("a", text=PAPERS.text): seeds(-6.0, 0.1)}, PAPERS)
    assert [(row.place, row.verdict) for row in judge([figure], {"made": own}).rows] == [(PAPERS, REPRODUCED)]


def test_what_a_table_does_not_have_is_an_error_unless_it_says_why():
    claims, table = [named("a")], table_of({})
    with pytest.raises(KeyError):
        judge(claims, {"made": table})
    table.missing[Quantity("a", text=TEXT)] = "too few layers"
    assert verdicts_of(claims, table) == {"a": NOT_RUN}
    assert [row.verdict for row in judge(claims, {}).rows] == [NOT_RUN]


def test_what_failed_says_failed():
    claims, table = [named("a"), named("b")], table_of({Quantity("b", text=TEXT): seeds(-5.0)})
    table.failed[Quantity("a", text=TEXT)] = "not reached with every seed"
    rows = judge(claims, {"made": table}).rows
    assert [(row.verdict, row.remark) for row in rows] == [(FAILED, "not reached with every seed"), (REPRODUCED, "")]
    assert fact_of(claims, table) == [(str(SMALL), FAILED)]


def test_cannot_tell_carries_what_the_seeds_could_have_shown():
    (row,) = judge([named("a")], {"made": table_of({Quantity("a", text=TEXT): seeds(0.1)})}).rows
    assert (row.verdict, row.remark) == (CANNOT_TELL, "8 seeds show an effect of 1.16 in four cases of five")
    (row,) = judge([named("a")], {"made": table_of({Quantity("a", text=TEXT): seeds(-9.0, n=2)})}).rows
    assert (row.verdict, row.remark) == (CANNOT_TELL, "2 seeds, at least 3 are needed")


def mean_with(p, n=8):
    """The mean below zero, in standard deviations, whose two-sided p value is ``p``."""
    return float(stats.t.ppf(p / 2, n - 1)) / n**0.5


@pytest.mark.parametrize(("strong", "left"), [(0, 4), (2, 2), (3, 1)])
def test_a_control_is_held_against_the_level_that_the_correction_leaves(strong, left):
    """Of four controls, those that passed leave the others 5 % divided by how many are left, to either side of which
    the verdict changes; the smallest effect is of that level."""
    claims = [named(f"control-{i}", role=Role.CONTROL) for i in range(4)]
    level = 0.05 / left
    for factor, verdict in ((0.99, REPRODUCED), (1.01, CANNOT_TELL)):
        means = [-9.0] * strong + [0.0] * (left - 1) + [mean_with(factor * level)]
        table = table_of({Quantity(c.id, text=TEXT): seeds(m) for c, m in zip(claims, means, strict=True)})
        row = judge(claims, {"made": table}).rows[-1]
        assert row.verdict == verdict
        if verdict == CANNOT_TELL:
            assert row.ours is not None
            assert row.level == pytest.approx(level)
            assert row.remark == below().limit(row.ours, level)
            assert power_of(below().smallest(row.ours, row.level), 1.0, 8, level) == pytest.approx(0.8)


def test_a_part_of_a_fact_that_needs_all_is_held_against_five_percent():
    for fact, level in ((BEATS_STANDARD, 0.05), (ANY, 0.05 / 3)):
        claims = [named(name, fact=fact) for name in "abc"]
        table = table_of({Quantity(name, text=TEXT): seeds(0.1) for name in "abc"})
        assert {row.level for row in judge(claims, {"made": table}).rows} == {level}


def test_a_part_with_too_few_seeds_is_not_one_of_the_family():
    claims = [named(name, role=Role.CONTROL) for name in "ab"]
    table = table_of({Quantity("a", text=TEXT): seeds(0.1), Quantity("b", text=TEXT): seeds(0.1, n=2)})
    assert [row.level for row in judge(claims, {"made": table}).rows] == [0.05, 0.05]


def test_parts_still_to_be_run_keep_a_fact_from_being_reproduced():
    other = replace(named("later"), experiment="not there")
    table = table_of({Quantity("a", text=TEXT): seeds(-5.0)})
    assert fact_of([named("a")], table) == [(str(SMALL), REPRODUCED)]
    assert fact_of([named("a"), other], table) == [(str(SMALL), CANNOT_TELL)]


def test_a_fact_that_needs_one_part():
    claims = [named("a", fact=ANY), named("b", fact=ANY)]
    table = table_of({Quantity("a", text=TEXT): seeds(-5.0), Quantity("b", text=TEXT): seeds(5.0)})
    assert fact_of(claims, table, ANY) == [(str(SMALL), REPRODUCED)]


def test_an_open_question_stays_open():
    claims = [named("slope", criterion=SHOWN, fact=SIZE)]
    assert fact_of(claims, table_of({Quantity("slope", text=TEXT): seeds(9.0)}), SIZE) == [(str(SMALL), OPEN)]


def test_checks_decide_without_seeds():
    claims = [named("a", criterion=HOLDS), named("b", criterion=HOLDS)]
    exact = {"std": 0.0, "n": 0}
    for second, verdict in ((1.0, REPRODUCED), (0.0, CONTRADICTED)):
        table = table_of(
            {Quantity("a", text=TEXT): seeds(1.0, **exact), Quantity("b", text=TEXT): seeds(second, **exact)}
        )
        assert fact_of(claims, table) == [(str(SMALL), verdict)]


def headline_of(claims, table):
    (fact,) = [f for f in judge(claims, {"made": table}).facts if f.place is not None]
    assert fact.headline is not None
    return fact.verdict, fact.headline.claim.id, fact.headline.verdict


def test_the_headline_is_the_part_that_decided():
    claims = [named("a"), named("b")]
    table = table_of({Quantity("a", text=TEXT): seeds(-5.0), Quantity("b", text=TEXT): seeds(5.0)})
    assert headline_of(claims, table) == (CONTRADICTED, "b", CONTRADICTED)
    assert headline_of(claims[:1], table) == (REPRODUCED, "a", REPRODUCED)


def test_the_headline_of_a_fact_that_cannot_be_told_is_the_reason():
    claims = [named("a"), named("b")]
    good = {Quantity("a", text=TEXT): seeds(-5.0)}
    weak = table_of(good | {Quantity("b", text=TEXT): seeds(-0.1)})
    assert headline_of(claims, weak) == (CANNOT_TELL, "b", CANNOT_TELL)
    without = table_of(good)
    without.missing[Quantity("b", text=TEXT)] = "too few layers"
    assert headline_of(claims, without) == (CANNOT_TELL, "b", NOT_RUN)
    later = replace(named("later"), experiment="not there")
    assert headline_of([claims[0], later], without) == (CANNOT_TELL, "later", NOT_RUN)
    size = named("size", Quantity("size", -6.0), number(), role=Role.PART)
    own = table_of(good | {Quantity("size", text=TEXT): seeds(-9.0, 0.1)})
    assert headline_of([claims[0], size], own) == (CANNOT_TELL, "size", NOT_REPRODUCED)
    assert headline_of([claims[0], size, later], own) == (CANNOT_TELL, "size", NOT_REPRODUCED)


def test_a_part_that_failed_explains_why_nothing_is_contradicted():
    claims = [named("a", fact=ANY), named("b", fact=ANY)]
    table = table_of({Quantity("a", text=TEXT): seeds(5.0)})
    table.failed[Quantity("b", text=TEXT)] = "diverged"
    assert headline_of(claims, table) == (CANNOT_TELL, "b", FAILED)
    table.failed[Quantity("a", text=TEXT)] = "diverged"
    assert headline_of(claims, table) == (FAILED, "a", FAILED)


def test_every_fact_is_listed_once_where_nothing_was_run():
    facts = judge([named("a")], {}).facts
    assert [f.fact for f in facts] == list(FACTS)
    assert {f.verdict for f in facts} == {NOT_RUN}
