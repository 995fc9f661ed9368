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


def shown_fact(judged: JudgedFact) -> str:
    """The number of a fact's headline, with what the seeds could have shown; of checks, how many hold."""
    checks = [part for part in judged.parts if part.claim.criterion.rule == "holds"]
    if checks and len(checks) == len(judged.parts):
        return f"{sum(part.verdict == REPRODUCED for part in checks)} of {len(checks)} checks hold"
    headline = judged.headline
    if headline is None or headline.ours is None:
        return "" if headline is None else headline.remark
    e, criterion = headline.ours, headline.claim.criterion
    number = f"{e.mean:.3g}" if e.n <= 1 else f"{e.mean:.3g} [{e.low:.3g}, {e.high:.3g}]"
    if judged.verdict != CANNOT_TELL or not criterion.is_test:
        return number
    return f"{number}; {e.n} {e.over}" if too_few(e) else f"{number}; could show {criterion.smallest(e):.2g}"


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
    """Return one verdict per distinct estimate: a number that several claims restate counts once, at its worst.

    Checks without randomness count each by itself; estimates are the same if their mean, spread and seeds are.
    """
    verdicts: dict[Any, list[str]] = {}
    for row in rows:
        e = row.ours
        if e is not None:
            check = row.claim.experiment, row.claim.quantity
            verdicts.setdefault((round(e.mean, 12), round(e.std, 12), e.n) if e.n else check, []).append(row.verdict)
    return [next(v for v in LEAST_FAVOURABLE if v in group) for group in verdicts.values()]


def places_of(ledger: Ledger) -> list[Place]:
    """Every place that was run, in the order of the claims."""
    return list(dict.fromkeys(row.place for row in ledger.rows if row.place is not None and row.ours is not None))


def counts(ledger: Ledger) -> list[str]:
    """Count facts, then distinct estimates, then controls, at each place by itself: no sum over places."""
    papers = [fact for fact in ledger.facts if not fact.fact.is_ours]
    lines = []
    for place in places_of(ledger):
        own = [fact.verdict for fact in papers if fact.place == place]
        rows = [row for row in ledger.rows if row.place == place]
        estimates = distinct([row for row in rows if row.claim.role is not Role.CONTROL])
        controls = distinct([row for row in rows if row.claim.role is Role.CONTROL])
        counted = ((own, "fact"), (estimates, "distinct estimate"), (controls, "control"))
        parts = [f"{len(v)} {what}{'s' * (len(v) > 1)} ({tally(v)})" for v, what in counted if v]
        lines.append(f"{place}: {'; '.join(parts)}")
    waiting = [fact.fact.title for fact in papers if fact.place is None]
    return lines + ([f"not run at any place: {', '.join(waiting)}"] if waiting else [])


def facts_table(ledger: Ledger) -> RichTable:
    """The facts that were run, as a table of one line each, where the terminal is wide enough."""
    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("fact", "where", "verdict", "ours, 95 % interval", "paper"):
        table.add_column(heading, no_wrap=heading == "verdict")
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
        cells = [c.id, c.fact.id, section(judged), c.sentence, c.paper, shown(judged), judged.verdict]
        lines.append(f"| {' | '.join([*cells, where(judged.place)])} |")
    return "\n".join(lines) + "\n"


def facts_markdown(ledger: Ledger) -> str:
    """The facts that were run, as a table of Markdown."""
    lines = ["| fact | where | verdict | ours, 95 % interval | paper |", "|---|---|---|---|---|"]
    for judged in ran(ledger):
        cells = [judged.sentence, where(judged.place), judged.verdict, shown_fact(judged), said_of_fact(judged)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


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
