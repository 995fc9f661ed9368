"""The ledger for people: what is counted, and what fits a screen."""

import io
from dataclasses import replace

from rich.console import Console

from boosted_attention.lab.judging import ledger
from boosted_attention.lab.judging.claim import Role
from boosted_attention.lab.judging.facts import RECALL
from boosted_attention.lab.judging.judge import judge
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.verdicts import HOLDS, above
from boosted_attention.statistics import estimate
from tests.lab.judging.made import PAPERS, SMALL, named, seeds, table_of

TEXT = SMALL.text


def judged(estimates, **options):
    claims = [named(name, **options) for name in estimates]
    return judge(claims, {"made": table_of({Quantity(name, text=TEXT): e for name, e in estimates.items()})})


def test_a_restated_number_counts_once_at_its_worst():
    same = estimate([-3.0, -2.0, -1.0])
    found = judged({"a": same, "again": same, "other": seeds(-5.0)})
    assert ledger.distinct(found.rows) == ["cannot tell", "reproduced"]
    claims = [named("up", Quantity("a"), above(), role=Role.ASIDE), named("down", Quantity("a"), role=Role.ASIDE)]
    rows = judge(claims, {"made": table_of({Quantity("a", text=TEXT): seeds(5.0)})}).rows
    assert [row.verdict for row in rows] == ["reproduced", "contradicted"]
    assert ledger.distinct(rows) == ["contradicted"]


def test_checks_count_each():
    exact = {"std": 0.0, "n": 0}
    found = judged({name: seeds(1.0, **exact) for name in "abc"}, criterion=HOLDS)
    assert ledger.distinct(found.rows) == ["reproduced"] * 3
    (fact,) = ledger.ran(found)
    assert ledger.shown_fact(fact) == "3 of 3 hold"


def test_counts_are_of_one_place_at_a_time_and_controls_stand_apart():
    claims = [named("a"), named("control", role=Role.CONTROL)]
    both = {Quantity(c.id, text=TEXT): seeds(-5.0, std) for c, std in zip(claims, (1.0, 0.5), strict=True)}
    lines = ledger.counts(judge(claims, {"made": table_of(both)}))
    assert lines[0] == (
        "wikitext-2, 0.4 M: 1 fact (1 reproduced); 1 distinct estimate (1 reproduced); 1 control (1 reproduced)"
    )
    assert lines[1].startswith("not run at any place: beats as many parameters, ")
    theory = replace(claims[0], experiment="theory", kind=Kind.THEORY)
    table = table_of({Quantity("a"): seeds(-5.0)}, Place(kind=Kind.THEORY))
    lines = ledger.counts(judge([*claims, theory], {"made": table_of(both), "theory": table}))
    assert [line.split(":")[0] for line in lines[:2]] == ["wikitext-2, 0.4 M", "theory"]


def test_questions_of_ours_are_counted_apart():
    claims = [named("a"), named("b", fact=RECALL), named("c", fact=RECALL), named("d", fact=RECALL, role=Role.CONTROL)]
    made = {Quantity(c.id, text=TEXT): seeds(-5.0, 0.1 * (i + 1)) for i, c in enumerate(claims)}
    assert ledger.counts(judge(claims, {"made": table_of(made)}))[0] == (
        "wikitext-2, 0.4 M: 1 fact (1 reproduced); 1 distinct estimate (1 reproduced); "
        "2 estimates for questions of ours (2 reproduced); 1 control (1 reproduced)"
    )


def test_what_failed_is_counted_once_for_each_quantity():
    """Also where nothing else was run, and where a figure restates it on its own text."""
    claims = [named("a"), named("a-size", Quantity("a", -6.0, text=PAPERS.text), role=Role.NUMBER), named("b")]
    table = table_of({}, PAPERS)
    table.failed = {Quantity(name, text=PAPERS.text): "diverged" for name in "ab"}
    found = judge(claims, {"made": table})
    assert [row.verdict for row in found.rows] == ["failed"] * 3
    assert ledger.counts(found)[0] == "wikitext-103, 8.7 M: 1 fact (1 failed); 2 distinct estimates (2 failed)"
    table.failed, table.missing = {}, table.failed
    assert ledger.counts(judge(claims, {"made": table}))[0].startswith("not run at any place")


def test_questions_of_ours_are_no_facts_of_the_paper_in_markdown():
    claims = [named("a"), named("b", fact=RECALL)]
    both = {Quantity(c.id, text=TEXT): seeds(-5.0) for c in claims}
    papers, ours = ledger.facts_markdown(judge(claims, {"made": table_of(both)})).split("Questions of ours")
    assert "| fact | where |" in papers
    assert "| Boosted attention has a lower perplexity" in papers
    assert "recalls" not in papers
    assert "| question | where |" in ours
    assert "| Boosted attention recalls associations" in ours
    assert "Questions" not in ledger.facts_markdown(judge(claims[:1], {"made": table_of(both)}))
    assert ledger.facts_markdown(judge(claims[1:], {"made": table_of(both)})).startswith("Questions")


def test_a_reason_with_another_verdict_is_shown_with_it():
    found = judged({"a": seeds(-5.0), "b": seeds(-5.0)})
    later = replace(named("later"), experiment="not there")
    (fact,) = ledger.ran(judge([named("a"), later], {"made": table_of({Quantity("a", text=TEXT): seeds(-5.0)})}))
    assert ledger.shown_fact(fact) == "not run"
    assert ledger.shown_fact(ledger.ran(found)[0]) == "-5 [-6, -4]"
    table = table_of({Quantity("a", text=TEXT): seeds(-5.0)})
    table.missing[Quantity("b", text=TEXT)] = "too few layers"
    (fact,) = ledger.ran(judge([named("a"), named("b")], {"made": table}))
    assert ledger.shown_fact(fact) == "not run: too few layers"


def test_a_fact_that_cannot_be_told_says_what_could_have_been():
    (fact,) = ledger.ran(judged({"a": seeds(0.1)}))
    assert ledger.shown_fact(fact) == "0.1 [-0.9, 1.1]; could show 1.2"
    (fact,) = ledger.ran(judged({"a": seeds(0.1, n=2)}))
    assert ledger.shown_fact(fact) == "0.1 [-0.9, 1.1]; 2 seeds"


def test_tables_show_every_row():
    found = judged({"a": seeds(0.1), "b": seeds(-5.0)})
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(ledger.rows_table(found.rows))
    console.print(ledger.facts_table(found))
    text = console.export_text()
    assert "ours: 0.1 [-0.9, 1.1]; paper: -6.0 %; at wikitext-2, 0.4 M;" in " ".join(text.split())
    assert "beats standard" in text
    markdown = ledger.as_markdown(found)
    could = "8 seeds show an effect of 1.16 in four cases of five"
    assert f"| a | beats-standard | 6.1 | a. | -6.0 % | 0.1 [-0.9, 1.1]; {could} | cannot tell | {SMALL} |" in markdown
    assert f"| b | beats-standard | 6.1 | b. | -6.0 % | -5 [-6, -4] | reproduced | {SMALL} |" in markdown
    rows = ledger.as_rows(found)
    assert [row["id"] for row in rows["claims"]] == ["a", "b"]
    assert rows["facts"][0]["parts"] == ["a", "b"]
