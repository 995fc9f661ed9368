"""The ledger: judged claims for people, as a table in the terminal or as Markdown, and as rows of JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table as RichTable

from boosted_attention.lab.judging.claim import Judged
from boosted_attention.lab.judging.verdicts import VERDICTS

COLOURS = {
    "reproduced": "green",
    "within noise": "yellow",
    "not reproduced": "magenta",
    "contradicted": "red",
    "not run": "dim",
}


def shown(judged: Judged) -> str:
    """Our number with its interval."""
    ours = judged.ours
    if ours is None:
        return ""
    if judged.claim.criterion.rule == "holds":
        return "holds" if ours.mean == 1.0 else "does not hold"
    return f"{ours.mean:.4g}" if ours.n <= 1 else f"{ours.mean:.4g} [{ours.low:.4g}, {ours.high:.4g}]"


def counts(ledger: Sequence[Judged]) -> str:
    """How many claims of the paper have each verdict; the controls apart."""

    def tally(chosen: list[Judged], what: str) -> str:
        number = Counter(judged.verdict for judged in chosen)
        return f"{len(chosen)} {what}: " + ", ".join(f"{number[v]} {v}" for v in VERDICTS if number[v])

    claims, controls = ([j for j in ledger if j.claim.control == kind] for kind in (False, True))
    return tally(claims, "claims") + (f"; {tally(controls, 'controls')}" if controls else "")


def section(judged: Judged) -> str:
    return f"{judged.claim.section} (control)" if judged.claim.control else judged.claim.section


def scale(judged: Judged) -> str:
    return judged.scale or ("" if judged.ours is None else "paper's")


def as_terminal(ledger: Sequence[Judged]) -> RichTable:
    """The ledger as a table; numbers stand below the sentence, so that 80 columns hold both."""
    table = RichTable(title=counts(ledger), box=box.SIMPLE_HEAD)
    table.add_column("section")
    table.add_column("claim, with 95 % intervals", ratio=1)
    table.add_column("verdict", no_wrap=True)
    for judged in ledger:
        colour = COLOURS[judged.verdict]
        claim = judged.claim
        numbers = {"ours: ": shown(judged), "paper: ": claim.paper, "scale: ": scale(judged)}
        below = "; ".join(f"{what}{value}" for what, value in numbers.items() if value)
        table.add_row(
            section(judged),
            f"{escape(claim.sentence)}\n[dim]{escape(below)}[/dim]",
            f"[{colour}]{judged.verdict}[/{colour}]",
        )
    return table


def as_markdown(ledger: Sequence[Judged]) -> str:
    lines = [
        f"{counts(ledger)}\n",
        "| id | section | claim | paper | ours, 95 % interval | verdict | scale |",
        "|---|---|---|---|---|---|---|",
    ]
    for judged in ledger:
        c = judged.claim
        cells = [c.id, section(judged), c.sentence, c.paper, shown(judged), judged.verdict, scale(judged)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def as_rows(ledger: Sequence[Judged]) -> list[dict[str, Any]]:
    """Every claim with its verdict, as JSON values."""
    rows = []
    for judged in ledger:
        c = judged.claim
        rows.append(
            {
                "id": c.id,
                "section": c.section,
                "sentence": c.sentence,
                "paper": c.paper,
                "experiment": c.experiment,
                "quantity": str(c.quantity),
                "criterion": str(c.criterion),
                "given": None if c.given is None else str(c.given),
                "control": c.control,
                "ours": None if judged.ours is None else asdict(judged.ours),
                "verdict": judged.verdict,
                "scale": judged.scale,
            }
        )
    return rows
