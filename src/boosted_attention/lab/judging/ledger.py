"""The ledger for people: facts on one screen, claims below them, both also as Markdown and as rows of JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table as RichTable

from boosted_attention.lab.judging.claim import Role
from boosted_attention.lab.judging.judge import Judged, JudgedFact, Ledger
from boosted_attention.lab.judging.place import Place
from boosted_attention.lab.judging.verdicts import (
    CANNOT_TELL,
    CONTRADICTED,
    FAILED,
    NOT_REPRODUCED,
    NOT_RUN,
    OPEN,
    REPRODUCED,
    VERDICTS,
    too_few,
)

COLOURS = {
    REPRODUCED: "green",
    CANNOT_TELL: "yellow",
    NOT_REPRODUCED: "magenta",
    CONTRADICTED: "red",
    FAILED: "red",
    OPEN: "cyan",
    NOT_RUN: "dim",
}
LEAST_FAVOURABLE = (CONTRADICTED, FAILED, NOT_REPRODUCED, CANNOT_TELL, OPEN, REPRODUCED)


def shown(judged: Judged) -> str:
    """Our number with its interval; where there is none, why."""
    ours = judged.ours
    if ours is None:
        return judged.remark
    if judged.claim.criterion.rule == "holds":
        return "holds" if ours.mean == 1.0 else "does not hold"
    return f"{ours.mean:.4g}" if ours.n <= 1 else f"{ours.mean:.4g} [{ours.low:.4g}, {ours.high:.4g}]"


def shown_with_remark(judged: Judged) -> str:
    """Our number with its interval, and what the seeds could have shown; where there is no number, why."""
    return "; ".join(text for text in (shown(judged), judged.remark if judged.ours is not None else "") if text)


def shown_fact(judged: JudgedFact) -> str:
    """The number of a fact's headline, with what the seeds could have shown; of checks, how many hold.

    A headline with another verdict than the fact, which it keeps from being told, comes with that verdict.
    """
    checks = [part for part in judged.parts if part.claim.criterion.rule == "holds"]
    if checks and len(checks) == len(judged.parts):
        return f"{sum(part.verdict == REPRODUCED for part in checks)} of {len(checks)} hold"
    headline = judged.headline
    if headline is None:
        return ""
    e, own = headline.ours, "" if headline.verdict == judged.verdict else headline.verdict
    if e is None:
        return ": ".join(text for text in (own, headline.remark) if text)
    number = f"{e.mean:.3g}" if e.n <= 1 else f"{e.mean:.3g} [{e.low:.3g}, {e.high:.3g}]"
    if headline.verdict != CANNOT_TELL or not headline.claim.criterion.is_test:
        return "; ".join(text for text in (number, own) if text)
    could = f"could show {headline.claim.criterion.smallest(e, headline.level):.2g}"
    return f"{number}; {e.n} {e.over}" if too_few(e) else f"{number}; {could}"


def said_of_fact(judged: JudgedFact) -> str:
    """What the paper says of a fact's headline."""
    checks = [part for part in judged.parts if part.claim.criterion.rule == "holds"]
    return "" if judged.headline is None or checks else judged.headline.claim.paper


def where(place: Place | None) -> str:
    return "" if place is None else str(place)


def section(judged: Judged) -> str:
    own = judged.claim.role is Role.CONTROL
    return f"{judged.claim.section} (control)" if own else judged.claim.section


def tally(verdicts: Iterable[str]) -> str:
    """Count verdicts, in their order."""
    number = Counter(verdicts)
    return ", ".join(f"{number[v]} {v}" for v in VERDICTS if number[v])


def distinct(rows: Sequence[Judged]) -> list[str]:
    """Return one verdict per distinct estimate of one place: what several claims restate counts once, at its worst.

    Estimates are the same if their mean, spread and seeds are. Checks without randomness, and what failed to give a
    number, are the same if their quantity is.
    """
    verdicts: dict[Any, list[str]] = {}
    for row in rows:
        e = row.ours
        if e is not None and e.n:
            verdicts.setdefault((round(e.mean, 12), round(e.std, 12), e.n), []).append(row.verdict)
        elif row.verdict != NOT_RUN:
            verdicts.setdefault((row.claim.experiment, row.claim.quantity.name), []).append(row.verdict)
    return [next(v for v in LEAST_FAVOURABLE if v in group) for group in verdicts.values()]


def places_of(ledger: Ledger) -> list[Place]:
    """Every place that was run, in the order of the claims."""
    return list(dict.fromkeys(row.place for row in ledger.rows if row.place is not None and row.verdict != NOT_RUN))


def counts(ledger: Ledger) -> list[str]:
    """Count the paper's facts and distinct estimates, then our questions and controls, each place by itself."""
    papers = [fact for fact in ledger.facts if not fact.fact.is_ours]
    lines = []
    for place in places_of(ledger):
        own = [fact.verdict for fact in papers if fact.place == place]
        rows = [row for row in ledger.rows if row.place == place]
        said = [row for row in rows if row.claim.role is not Role.CONTROL]
        counted = (
            (own, "fact", ""),
            (distinct([row for row in said if not row.claim.fact.is_ours]), "distinct estimate", ""),
            (distinct([row for row in said if row.claim.fact.is_ours]), "estimate", " for questions of ours"),
            (distinct([row for row in rows if row.claim.role is Role.CONTROL]), "control", ""),
        )
        parts = [f"{len(v)} {what}{'s' * (len(v) > 1)}{whose} ({tally(v)})" for v, what, whose in counted if v]
        lines.append(f"{place}: {'; '.join(parts)}")
    waiting = [fact.fact.title for fact in papers if fact.place is None]
    return lines + ([f"not run at any place: {', '.join(waiting)}"] if waiting else [])


def facts_table(ledger: Ledger) -> RichTable:
    """The facts that were run, as a table: one line each where the terminal is wide, two on 80 columns."""
    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, expand=True)
    shares = {"fact": 17, "where": None, "verdict": None, "ours [95 %]": 16, "paper": 13}  # of what the others leave
    for heading, share in shares.items():
        table.add_column(escape(heading), ratio=share, no_wrap=heading == "verdict")
    for judged in ran(ledger):
        colour = COLOURS[judged.verdict]
        table.add_row(
            escape(judged.title + (" (ours)" if judged.fact.is_ours else "")),
            escape(where(judged.place)),
            f"[{colour}]{judged.verdict}[/{colour}]",
            escape(shown_fact(judged)),
            escape(said_of_fact(judged)),
        )
    return table


def ran(ledger: Ledger) -> list[JudgedFact]:
    """The facts at the places where they were run."""
    return [fact for fact in ledger.facts if fact.place is not None]


def rows_table(rows: Sequence[Judged]) -> RichTable:
    """The claims as a table; numbers stand below the sentence, so that 80 columns hold both."""
    table = RichTable(box=box.SIMPLE_HEAD)
    table.add_column("section")
    table.add_column("claim, with 95 % intervals", ratio=1)
    table.add_column("verdict", no_wrap=True)
    for judged in rows:
        colour, claim = COLOURS[judged.verdict], judged.claim
        numbers = {"ours: ": shown(judged), "paper: ": claim.paper, "at ": where(judged.place)}
        if judged.ours is not None:
            numbers[""] = judged.remark
        below = "; ".join(f"{what}{value}" for what, value in numbers.items() if value)
        table.add_row(
            section(judged),
            f"{escape(claim.sentence)}\n[dim]{escape(below)}[/dim]",
            f"[{colour}]{judged.verdict}[/{colour}]",
        )
    return table


def as_markdown(ledger: Ledger) -> str:
    """Facts, counts and claims, as Markdown."""
    lines = [facts_markdown(ledger), *(f"- {line}" for line in counts(ledger)), ""]
    lines += [
        "| id | fact | section | claim | paper | ours, 95 % interval | verdict | where |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for judged in ledger.rows:
        c = judged.claim
        cells = [c.id, c.fact.id, section(judged), c.sentence, c.paper, shown_with_remark(judged), judged.verdict]
        lines.append(f"| {' | '.join([*cells, where(judged.place)])} |")
    return "\n".join(lines) + "\n"


def facts_markdown(ledger: Ledger) -> str:
    """The facts that were run, as a table of Markdown; questions of ours in a second one; neither where it is empty."""
    papers = [judged for judged in ran(ledger) if not judged.fact.is_ours]
    ours = [judged for judged in ran(ledger) if judged.fact.is_ours]
    lines = [*table_of_facts("fact", papers), ""] if papers else []
    if ours:
        lines += ["Questions of ours, which are no facts of the paper:", "", *table_of_facts("question", ours), ""]
    return "\n".join(lines)


def table_of_facts(what: str, facts: Sequence[JudgedFact]) -> list[str]:
    """The lines of a table of Markdown, whose first column is called ``what``."""
    rows = [
        [judged.sentence, where(judged.place), judged.verdict, shown_fact(judged), said_of_fact(judged)]
        for judged in facts
    ]
    heading = f"| {what} | where | verdict | ours, 95 % interval | paper |"
    return [heading, "|---|---|---|---|---|", *(f"| {' | '.join(cells)} |" for cells in rows)]


def as_rows(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    """Every fact and every claim with its verdict, as JSON values."""
    facts = [
        {
            "id": judged.fact.id,
            "sentence": judged.sentence,
            "section": judged.fact.section,
            "ours": judged.fact.is_ours,
            "where": where(judged.place),
            "verdict": judged.verdict,
            "parts": [part.claim.id for part in judged.parts],
        }
        for judged in ledger.facts
    ]
    rows = [
        {
            "id": judged.claim.id,
            "fact": judged.claim.fact.id,
            "role": judged.claim.role.value,
            "section": judged.claim.section,
            "sentence": judged.claim.sentence,
            "paper": judged.claim.paper,
            "experiment": judged.claim.experiment,
            "quantity": str(judged.claim.quantity),
            "criterion": str(judged.claim.criterion),
            "where": where(judged.place),
            "ours": None if judged.ours is None else asdict(judged.ours),
            "verdict": judged.verdict,
            "remark": judged.remark,
        }
        for judged in ledger.rows
    ]
    return {"facts": facts, "claims": rows}
