"""Cards: the facts in a few words, with a picture that shows the numbers where they are."""

import re

import pytest

from boosted_attention.lab.claims import CLAIMS
from boosted_attention.lab.judging.claim import Role
from boosted_attention.lab.judging.judge import judge
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.table import Table
from boosted_attention.report.cards import MARGIN, SHARED_UNIT, WIDTH, Picture, cards, draw_axis, opening, waiting
from boosted_attention.statistics import estimate


def test_controls_in_the_unit_of_their_fact_are_controls():
    controls = {claim.id for claim in CLAIMS if claim.role is Role.CONTROL}
    assert set(SHARED_UNIT) <= controls


def test_a_picture_puts_every_number_where_it_is():
    picture = Picture(ours=estimate([4.0, 5.0, 6.0]), paper=10.0, control=estimate([1.0]), target=0.0)
    drawn = draw_axis(picture)
    (mean, control), paper = re.findall(r'<circle class="\w+" cx="([\d.]+)"', drawn), re.search(r"M([\d.]+) 3l5", drawn)

    def at(value: float) -> float:
        return MARGIN + value / 10 * (WIDTH - 2 * MARGIN)

    assert float(mean) == pytest.approx(at(5), abs=0.06)
    assert float(control) == pytest.approx(at(1), abs=0.06)
    assert float(paper[1]) == pytest.approx(at(10), abs=0.06)
    assert 'aria-label="ours 5 [2.52, 7.48]; paper 10; control 1; tested against 0"' in drawn


def test_an_empty_ledger_opens_with_what_is_missing():
    found = judge(CLAIMS, {})
    assert cards(found) == []
    assert len(waiting(found)) == len(found.facts)
    assert opening(found) == ["Of the paper's 12 facts 0 were judged.", "No language model was trained."]


def test_a_ledger_with_one_table_says_where_it_stands():
    two = next(claim for claim in CLAIMS if claim.id == "lm-vs-standard")
    table = Table("made", [])
    table.places["words"] = Place(kind=Kind.LANGUAGE, text="words", size="1 M")
    table.quantities[two.quantity.on("words")] = estimate([-3.0, -3.1, -2.9, -3.0])
    found = judge([two], {two.experiment: table})
    (card,) = cards(found)
    assert (card["id"], card["verdict"], card["where"]) == ("beats-standard-words-1-M", "reproduced", "words, 1 M")
    assert opening(found) == [
        "Of the paper's 12 facts 1 was judged: 1 reproduced.",
        "No language model has the paper's size and text; words, 1 M: 1 reproduced.",
    ]
