"""Section: one subject of the benchmarks, from its measurement to its part of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bench import Bench
from benchmarks.race import Spread
from boosted_attention.chart import Figure


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A part of the page: text in Markdown, and the figures that follow it."""

    text: str
    figures: Sequence[Figure] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """One subject.

    Args:
        name: its name on the command line and in the JSON.
        title: its heading.
        minutes: what it takes at full size on two cores, for the time left.
        result: the dataclass that ``measure`` returns and the JSON holds.
        measure: does the measuring.
        show: makes its part of the page from the result alone.
    """

    name: str
    title: str
    minutes: float
    result: type
    measure: Callable[[Bench], Any]
    show: Callable[[Any], Shown]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, its first column to the left and the others to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "".join("| " + " | ".join(row) + " |\n" for row in (header, rule, *rows))


def ratio(spread: Spread) -> str:
    """Write a ratio with its quartiles."""
    return f"{spread.median:.2f} [{spread.low:.2f}, {spread.high:.2f}]"


def percent(spread: Spread) -> str:
    """Write a share in percent."""
    return f"{100 * spread.median:.0f} %"


def seconds(value: float) -> str:
    """Write a duration with three digits."""
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s"


def megabytes(count: float) -> str:
    """Write a number of bytes."""
    return f"{count / 1e6:,.0f} MB"
