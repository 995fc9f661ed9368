"""Judging: families, places, and facts that follow from their parts."""

from dataclasses import replace

import pytest

from boosted_attention.lab.judging.claim import Role
from boosted_attention.lab.judging.facts import BEATS_STANDARD, FACTS, SIZE
from boosted_attention.lab.judging.judge import decide, fact_verdict, judge
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.verdicts import (
    CANNOT_TELL,
    CONTRADICTED,
    FAILED,
    HOLDS,
    NOT_RUN,
    OPEN,
    REPRODUCED,
    SHOWN,
    PValues,
    number,
)
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


def test_the_headline_is_the_part_that_decided():
    claims = [named("a"), named("b")]
    table = table_of({Quantity("a", text=TEXT): seeds(-5.0), Quantity("b", text=TEXT): seeds(5.0)})
    (fact,) = [f for f in judge(claims, {"made": table}).facts if f.place is not None]
    assert fact.headline is not None
    assert fact.headline.claim.id == "b"


def test_every_fact_is_listed_once_where_nothing_was_run():
    facts = judge([named("a")], {}).facts
    assert [f.fact for f in facts] == list(FACTS)
    assert {f.verdict for f in facts} == {NOT_RUN}
