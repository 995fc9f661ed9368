"""The ledger of claims for people: a table in the terminal, or Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table as RichTable

from boosted_attention.lab.claims import Judged
from boosted_attention.lab.verdicts import VERDICTS

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


def as_terminal(ledger: Sequence[Judged]) -> RichTable:
    table = RichTable(title=counts(ledger))
    table.add_column("section")
    table.add_column("claim", ratio=1)
    table.add_column("paper")
    table.add_column("ours, 95 % interval")
    table.add_column("verdict", no_wrap=True)
    table.add_column("scale")
    for judged in ledger:
        colour = COLOURS[judged.verdict]
        claim = judged.claim
        table.add_row(
            section(judged), claim.sentence, claim.paper, shown(judged), f"[{colour}]{judged.verdict}[/{colour}]",
            escape(judged.scale or ("" if judged.ours is None else "paper's")),
        )  # fmt: skip
    return table


def as_markdown(ledger: Sequence[Judged]) -> str:
    lines = [
        f"{counts(ledger)}\n",
        "| id | section | claim | paper | ours, 95 % interval | verdict | scale |",
        "|---|---|---|---|---|---|---|",
    ]
    for judged in ledger:
        c = judged.claim
        scale = judged.scale or ("" if judged.ours is None else "paper's")
        cells = [c.id, section(judged), c.sentence, c.paper, shown(judged), judged.verdict, scale]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
