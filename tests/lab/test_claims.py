"""Claims about language models: each is judged at its place, and all are decided at the paper's."""

from dataclasses import replace

from boosted_attention.lab.claims import CLAIMS
from boosted_attention.lab.experiments import LANGUAGE
from boosted_attention.lab.judging.claim import Role
from boosted_attention.lab.judging.judge import judge
from boosted_attention.lab.judging.place import Kind, Place

PLACE = Place(kind=Kind.LANGUAGE, text="text:words.txt", size="23 k")  # of models that know 300 tokens


def test_claims_show_their_place_and_the_papers_figures_wait_for_theirs(language_smoke):
    found, _ = language_smoke
    judged = {j.claim.id: j for j in found.ledger.rows if j.claim.experiment in LANGUAGE}
    assert (judged["lm-vs-standard"].place, judged["lm-vs-standard"].verdict) == (PLACE, "cannot tell")  # two seeds
    assert "at least 3 are needed" in judged["lm-vs-standard"].remark
    for id, one in judged.items():
        if one.claim.role is Role.NUMBER:
            assert (one.verdict, one.place, one.ours) == ("not run", None, None), id
    decided = {id for id, j in judged.items() if j.verdict != "not run"}
    assert {"lm-post-reverses", "lm-kv-residual", "lm-rounds-enough", "lm-residual"} <= decided
    assert {"lm-flops", "lm-scale", "lm-selective"} <= decided


def test_repeats_are_counted_in_the_model_that_repeats_its_blocks(language_smoke):
    found, _ = language_smoke
    (note,) = (note for note in found.tables["lm-related"].notes if note.endswith("of 3 repeats."))
    assert 1.0 <= float(note.partition("tokens take ")[2].split()[0]) <= 3.0


def test_every_claim_is_decided_at_the_papers_place(language_smoke):
    """The same results, read as if they were of the paper's size and text: only what was not run stays open."""
    found, _ = language_smoke
    for text in ("wikitext-103", "openwebtext"):
        tables = {name: at_the_papers_place(found.tables[name], text) for name in LANGUAGE}
        for row in judge([claim for claim in CLAIMS if claim.experiment in LANGUAGE], tables).rows:
            of_another_text = row.claim.quantity.text not in ("", text)
            absent = row.claim.quantity.on(text) in tables[row.claim.experiment].missing
            assert (row.verdict == "not run") == (of_another_text or absent), row.claim.id


def at_the_papers_place(table, text):
    """A table as if its one text were one of the paper's."""

    def moved(values):
        return {quantity.on(text): value for quantity, value in values.items()}

    place = Place(kind=Kind.LANGUAGE, text=text, size="8.7 M", is_the_papers=True)
    held = {name: moved(getattr(table, name)) for name in ("quantities", "missing", "failed", "undecided")}
    return replace(table, places={text: place}, **held)
