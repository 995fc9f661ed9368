"""Tables: our numbers with intervals beside the paper's, paired comparisons, and named quantities for the claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from boosted_attention.statistics import Estimate, estimate, holm, paired_difference, seeds_needed

BySeed = Mapping[int, float]


@dataclass(frozen=True)
class Cell:
    ours: Estimate
    paper: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A paired difference, Holm-adjusted within its table; how many seeds the paper's effect would need to show."""

    label: str
    difference: Estimate
    paper: float | None
    p_holm: float | None
    seeds_needed: int | None


@dataclass
class Table:
    title: str
    columns: list[str]
    rows: dict[str, list[Cell | None]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    quantities: dict[str, Estimate] = field(default_factory=dict)  # what claims refer to
    precision: int = 1
    scale: str | None = None  # what was run, where that is smaller than the paper's own
    at_full_size: set[str] = field(default_factory=set)  # quantities that are of the paper's own size all the same

    def add_row(self, label: str, cells: Sequence[Cell | None]) -> None:
        self.rows[label] = list(cells)
        for column, cell in zip(self.columns, cells, strict=True):
            if cell is not None:
                self.quantities[f"{label} | {column}"] = cell.ours

    def compare(self, pairs: Sequence[tuple[str, BySeed, BySeed, float | None]]) -> None:
        """Add paired differences (label, a, b, the paper's a - b), corrected together."""
        differences = [paired_difference(a, b) for _, a, b, _ in pairs]
        tested = [i for i, difference in enumerate(differences) if difference.p is not None]
        adjusted = dict(zip(tested, holm([differences[i].p or 0.0 for i in tested]), strict=True))
        for i, ((label, _, _, paper), difference) in enumerate(zip(pairs, differences, strict=True)):
            needed = seeds_needed(paper, difference.std) if paper and difference.n > 1 else None
            self.comparisons.append(Comparison(label, difference, paper, adjusted.get(i), needed))
            self.quantities[label] = difference


def trained(values: BySeed, paper: float | None = None) -> Cell:
    return Cell(estimate(list(values.values())), paper)


def exact(value: float, paper: float | None = None) -> Cell:
    """A quantity without randomness of ours."""
    return Cell(exactly(value), paper)


def exactly(value: float) -> Estimate:
    return Estimate(mean=value, low=value, high=value, std=0.0, n=0)


def interval(e: Estimate, precision: int) -> str:
    if e.n <= 1:
        return f"{e.mean:.{precision}f}"
    shown = f"{e.mean:.{precision}f} [{e.low:.{precision}f}, {e.high:.{precision}f}]"
    if e.bootstrap is not None:
        shown += f" (bootstrap [{e.bootstrap[0]:.{precision}f}, {e.bootstrap[1]:.{precision}f}])"
    return shown


def render(table: Table) -> str:
    """The table as Markdown: ours with the 95 % interval, the paper's number in brackets where it has one."""

    def shown(cell: Cell | None) -> str:
        if cell is None:
            return ""
        paper = "" if cell.paper is None else f" (paper {cell.paper:g})"
        return interval(cell.ours, table.precision) + paper

    lines = [f"## {table.title}", ""]
    if table.rows:
        lines += ["| | " + " | ".join(table.columns) + " |", "|---" * (len(table.columns) + 1) + "|"]
        for label, cells in table.rows.items():
            lines.append(
                "| " + " | ".join([label.replace(" | ", ", "), *map(shown, cells)]) + " |"
            )  # a bar ends the cell
        lines.append("")
    if table.comparisons:
        columns = {
            "paired difference": [c.label.replace(" | ", ", ") for c in table.comparisons],
            "ours": [interval(c.difference, table.precision) for c in table.comparisons],
            "p (Holm)": ["" if c.p_holm is None else f"{c.p_holm:.2g}" for c in table.comparisons],
            "paper": ["" if c.paper is None else f"{c.paper:+.3g}" for c in table.comparisons],
            "seeds the paper's effect needs": [
                "" if c.seeds_needed is None else str(c.seeds_needed) for c in table.comparisons
            ],
        }
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        lines += ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        lines += ["| " + " | ".join(cells) + " |" for cells in zip(*columns.values(), strict=True)]
        lines.append("")
    lines += [f"{note}\n" for note in table.notes]
    return "\n".join(lines)
