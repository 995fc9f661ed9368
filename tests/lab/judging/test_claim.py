"""Claims: what decides them, and what keeps them from being decided."""

import pytest

from boosted_attention.lab.claims import CLAIMS
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import FACTS, TWO_ROUNDS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity, difference
from boosted_attention.lab.judging.verdicts import above, number


def test_a_number_needs_the_papers():
    with pytest.raises(AssertionError, match="the paper gives no number for gain"):
        claim("x", TWO_ROUNDS, Quantity("gain"), number(), "It gains.")
    with pytest.raises(AssertionError, match="what does the paper say"):
        claim("x", TWO_ROUNDS, Quantity("gain"), above(), "It gains.")
    made = claim("x", TWO_ROUNDS, Quantity("gain", 9.5), number(rival=0.5, runs=2), "It gains.")
    assert (made.criterion.target, made.criterion.rival, made.criterion.runs, made.paper) == (9.5, 0.5, 2, "9.5")
    assert claim("x", TWO_ROUNDS, Quantity("gain"), above(), "It gains.", paper="much").paper == "much"


def test_roles_follow_from_the_rule_unless_they_are_given():
    gain = Quantity("gain", 9.5)
    assert claim("x", TWO_ROUNDS, gain, number(), "It gains.").role is Role.NUMBER
    assert claim("x", TWO_ROUNDS, gain, above(), "It gains.").role is Role.PART
    assert claim("x", TWO_ROUNDS, gain, above(), "It gains.", role=Role.CONTROL).role is Role.CONTROL
    assert claim("x", TWO_ROUNDS, gain, above(), "It gains.").section == TWO_ROUNDS.section


def test_quantities_are_known_by_name_and_text():
    assert Quantity("a", 1.0) == Quantity("a", 2.0)
    assert Quantity("a") != Quantity("a").on("wikitext-2")
    assert str(Quantity("a").on("wikitext-2")) == "a | wikitext-2"
    assert Quantity("a", 1.0).on("wikitext-2").paper == 1.0
    assert Quantity("a", 1.0).with_paper(2.0).paper == 2.0
    gain = difference(Quantity("M=2", 55.5), Quantity("M=1", 46.0))
    assert (gain.name, gain.paper) == ("M=2 - M=1", 9.5)
    assert difference(Quantity("M=2", 55.5), Quantity("M=1")).paper is None


def test_every_fact_of_the_paper_has_a_part_and_every_claim_a_fact():
    facts = [fact for fact in FACTS if not fact.is_ours]
    assert len(facts) == 12
    for fact in FACTS:
        assert any(c.fact is fact and c.role is Role.PART for c in CLAIMS), fact.id
    assert {c.fact for c in CLAIMS} == set(FACTS)


def test_what_the_paper_did_not_test_is_a_control_or_a_question_of_ours():
    for c in CLAIMS:
        untested = c.paper in ("not tested", "not measured") or c.id.startswith("lm-selective")
        assert untested == (c.role is Role.CONTROL or (untested and c.fact.is_ours)), c.id


def test_figures_of_a_text_name_it_and_the_rest_does_not():
    for c in CLAIMS:
        if c.kind is Kind.LANGUAGE:
            assert bool(c.quantity.text) == (c.role is Role.NUMBER), c.id


def test_ids_are_unique_and_texts_are_whole():
    assert len({c.id for c in CLAIMS}) == len(CLAIMS)
    for c in CLAIMS:
        assert c.sentence.endswith("."), c.id
        assert c.paper not in ("", "None"), c.id
