"""Claims: what decides them, and what keeps them from being decided."""

import pytest

from boosted_attention.lab.claims import CLAIMS
from boosted_attention.lab.experiments.language import rounds
from boosted_attention.lab.judging.claim import claim, judge
from boosted_attention.lab.judging.quantity import Quantity, difference
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.judging.verdicts import above, number
from boosted_attention.statistics import Estimate

ONE = {"mean": -1.0, "low": -2.0, "high": -0.5, "std": 0.1, "n": 3}


def test_a_gain_must_be_there_before_it_is_divided():
    (enough,) = rounds.EXPERIMENT.claims
    table = Table("", [])
    table.quantities[enough.quantity] = Estimate(**ONE)
    for low, high, verdict in ((-3, -1, "reproduced"), (-1, 1, "within noise"), (1, 3, "not reproduced")):
        table.quantities[rounds.SECOND.quantity] = Estimate(**{**ONE, "low": low, "high": high})
        assert judge(enough, {"lm-rounds": table}).verdict == verdict


def test_what_a_table_does_not_have_is_an_error_unless_it_says_why():
    chosen = CLAIMS[0]
    assert judge(chosen, {}).verdict == "not run"
    table = Table("", [])
    with pytest.raises(KeyError):
        judge(chosen, {chosen.experiment: table})
    table.missing[chosen.quantity] = "not reached"
    assert judge(chosen, {chosen.experiment: table}).verdict == "not run"


def test_a_number_needs_the_papers():
    with pytest.raises(AssertionError, match="the paper gives no number for gain"):
        claim("x", "1", Quantity("gain"), number(), "It gains.")
    with pytest.raises(AssertionError, match="what does the paper say"):
        claim("x", "1", Quantity("gain"), above(), "It gains.")
    made = claim("x", "1", Quantity("gain", 9.5), number(0.5), "It gains.")
    assert (made.criterion.target, made.criterion.margin, made.paper) == (9.5, 0.5, "9.5")
    assert claim("x", "1", Quantity("gain"), above(), "It gains.", paper="much").paper == "much"


def test_quantities_are_known_by_name_and_text():
    assert Quantity("a", 1.0) == Quantity("a", 2.0)
    assert Quantity("a") != Quantity("a").on("wikitext-2")
    assert str(Quantity("a").on("wikitext-2")) == "a | wikitext-2"
    gain = difference(Quantity("M=2", 55.5), Quantity("M=1", 46.0))
    assert (gain.name, gain.paper) == ("M=2 - M=1", 9.5)
    assert difference(Quantity("M=2", 55.5), Quantity("M=1")).paper is None


def test_ids_are_unique_and_texts_are_whole():
    assert len({c.id for c in CLAIMS}) == len(CLAIMS)
    for c in CLAIMS:
        assert c.sentence.endswith("."), c.id
        assert c.paper not in ("", "None"), c.id
