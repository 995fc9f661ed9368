"""Tables: our numbers with intervals beside the paper's, paired comparisons, and the quantities behind both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from boosted_attention.lab.judging.place import Place
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.verdicts import too_few
from boosted_attention.statistics import Estimate, estimate, paired_difference, seeds_needed, smallest_effect

BySeed = Mapping[int, float]


@dataclass(frozen=True)
class Cell:
    """A number of ours beside the paper's; with the quantity it is, where claims or figures ask for it."""

    ours: Estimate
    paper: float | None = None
    quantity: Quantity | None = None


def cell(quantity: Quantity, ours: Estimate) -> Cell:
    """A cell that shows a quantity."""
    return Cell(ours, quantity.paper, quantity)


@dataclass(frozen=True)
class Paired:
    """Two arms' values by seed, to be compared as the quantity a - b."""

    quantity: Quantity
    a: BySeed
    b: BySeed


@dataclass(frozen=True)
class Comparison:
    """A paired difference, and how many seeds the paper's effect would need to show."""

    quantity: Quantity
    difference: Estimate
    seeds_needed: int | None

    @property
    def label(self) -> str:
        return str(self.quantity)

    @property
    def paper(self) -> float | None:
        return self.quantity.paper

    @property
    def could_show(self) -> float | None:
        """The smallest effect that the seeds would have shown in four cases of five; None with too few of them."""
        found = self.difference
        return None if found.n == 0 or too_few(found) else smallest_effect(found.std, found.n)


@dataclass
class Table:
    """What an experiment found.

    Args:
        title: heading.
        columns: headings of the numbers in a row.
        precision: decimals shown.
    """

    title: str
    columns: list[str]
    precision: int = 1
    places: dict[str, Place] = field(default_factory=dict)  # by the text of quantities; "" without texts
    rows: dict[str, list[Cell | None]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    quantities: dict[Quantity, Estimate] = field(default_factory=dict)
    missing: dict[Quantity, str] = field(default_factory=dict)  # not run, with the reason
    failed: dict[Quantity, str] = field(default_factory=dict)  # run without giving a number, with the reason
    undecided: dict[Quantity, str] = field(default_factory=dict)  # the same with too few seeds to have failed

    def add_row(self, label: str, cells: Sequence[Cell | None]) -> None:
        """Add a row; the quantities of its cells are then known."""
        assert len(cells) == len(self.columns), f"{label}: {len(cells)} cells for {len(self.columns)} columns"
        self.rows[label] = list(cells)
        self.quantities |= {c.quantity: c.ours for c in cells if c is not None and c.quantity is not None}

    def compare(self, pairs: Sequence[Paired]) -> None:
        """Add paired differences."""
        for pair in pairs:
            difference, paper = paired_difference(pair.a, pair.b), pair.quantity.paper
            needed = seeds_needed(paper, difference.std) if paper and difference.n > 1 else None
            self.comparisons.append(Comparison(pair.quantity, difference, needed))
            self.quantities[pair.quantity] = difference


def over_seeds(values: BySeed) -> Estimate:
    """Mean and interval of one value per seed."""
    return estimate(list(values.values()))


def exactly(value: float) -> Estimate:
    """A number without randomness of ours."""
    return Estimate(mean=value, low=value, high=value, std=0.0, n=0)


def interval(e: Estimate, precision: int) -> str:
    """A mean with its interval as text."""
    if e.n <= 1:
        return f"{e.mean:.{precision}f}"
    shown = f"{e.mean:.{precision}f} [{e.low:.{precision}f}, {e.high:.{precision}f}]"
    if e.bootstrap is not None:
        shown += f" (bootstrap [{e.bootstrap[0]:.{precision}f}, {e.bootstrap[1]:.{precision}f}])"
    return shown


def without_bars(label: str) -> str:
    """A label that does not end a cell of Markdown."""
    return label.replace(" | ", ", ")


def render(table: Table) -> str:
    """The table as Markdown, with its heading and notes."""
    parts = [f"## {table.title}\n", grids(table), *(f"{note}\n" for note in table.notes)]
    return "\n".join(part for part in parts if part)


def grids(table: Table) -> str:
    """Rows and comparisons as Markdown: ours with the 95 % interval, the paper's number in brackets if it has one."""

    def shown(cell: Cell | None) -> str:
        if cell is None:
            return ""
        paper = "" if cell.paper is None else f" (paper {cell.paper:g})"
        return interval(cell.ours, table.precision) + paper

    rows = [[without_bars(label), *map(shown, cells)] for label, cells in table.rows.items()]
    compared = comparison_columns(table)
    return "\n".join(
        grid(heads, cells)
        for heads, cells in ((["", *table.columns], rows), ([*compared], list(zip(*compared.values(), strict=True))))
        if cells
    )


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells as a table of Markdown; the first head may be empty."""
    lines = [
        f"| {' | '.join(heads).lstrip()} |",
        "|---" * len(heads) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return "".join(f"{line}\n" for line in lines)


def comparison_columns(table: Table) -> dict[str, list[str]]:
    """The paired differences as text, column by column; columns without an entry are left out."""
    rows, digits = table.comparisons, table.precision
    columns = {
        "paired difference": [without_bars(c.label) for c in rows],
        "ours": [interval(c.difference, digits) for c in rows],
        "p": ["" if c.difference.p is None else f"{c.difference.p:.2g}" for c in rows],
        "effect the seeds could show, at 5 %": [
            "" if c.could_show is None else f"{c.could_show:.{digits}f}" for c in rows
        ],
        "paper": ["" if c.paper is None else f"{c.paper:+.3g}" for c in rows],
        "seeds the paper's effect needs": ["" if c.seeds_needed is None else str(c.seeds_needed) for c in rows],
    }
    return {name: cells for name, cells in columns.items() if any(cells)}
