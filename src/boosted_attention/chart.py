"""A figure as data: what is drawn, not how. ``svg.py`` draws it into the page, ``files.py`` into PNG and SVG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from boosted_attention.statistics import Estimate


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points with optional intervals. Series of one name have one colour and one entry in the legend."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    style: str = "line"  # line, dashes, points or bars
    width: float = 0.8  # of bars, in units of x


@dataclass(frozen=True, kw_only=True)
class Panel:
    x_label: str
    y_label: str
    series: Sequence[Series]
    title: str = ""
    ticks: Mapping[float, str] | None = None  # on the x axis, where they are no plain numbers
    levels: Mapping[str, float] = field(default_factory=dict)  # horizontal lines
    marks: Mapping[str, float] = field(default_factory=dict)  # vertical lines
    log_x: bool = False
    from_zero: bool = False  # the y axis begins at 0


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str  # of its files, and its anchor
    title: str
    caption: str
    panels: Sequence[Panel]


def measured(
    name: str, x: Sequence[float], estimates: Sequence[Estimate], style: str = "line", width: float = 0.8
) -> Series:
    """A series with the intervals of its estimates."""
    return Series(
        name=name,
        x=list(x),
        y=[e.mean for e in estimates],
        low=[e.low for e in estimates],
        high=[e.high for e in estimates],
        style=style,
        width=width,
    )


def beside(groups: int, index: int) -> tuple[float, float]:
    """Offset and width of the bars of one of several series that stand beside each other at every x."""
    width = 0.8 / groups
    return (index - (groups - 1) / 2) * width, width


def names(figure: Figure) -> list[str]:
    """Every series of a figure once, in order: its legend."""
    return list(dict.fromkeys(series.name for panel in figure.panels for series in panel.series))


def bounds(panel: Panel) -> tuple[float, float, float, float]:
    """The rectangle that holds all points, intervals and levels, with a little air: x low, x high, y low, y high."""
    xs, ys = [*panel.marks.values()], [*panel.levels.values()]
    for series in panel.series:
        half = series.width / 2 if series.style == "bars" else 0.0
        xs += [x - half for x in series.x] + [x + half for x in series.x]
        ys += [*series.y, *(series.low or []), *(series.high or [])]
        ys += [0.0] if series.style == "bars" else []
    if panel.from_zero:
        ys.append(0.0)
    x_low, x_high, y_low, y_high = min(xs), max(xs), min(ys), max(ys)
    x_air = (x_high - x_low) * 0.03 or 0.5
    y_air = (y_high - y_low) * 0.06 or max(abs(y_high), 1.0) * 0.05
    if panel.log_x:
        return x_low / 1.1, x_high * 1.1, y_low - y_air, y_high + y_air
    if panel.ticks is not None and len(panel.ticks) > 1 and not any(s.style == "bars" for s in panel.series):
        x_air = min(b - a for a, b in pairwise(sorted(panel.ticks))) / 2  # room for names below the first and the last
    flat = panel.from_zero or any(series.style == "bars" for series in panel.series)
    low = 0.0 if flat and y_low >= 0 else y_low - y_air
    return x_low - x_air, x_high + x_air, low, y_high + y_air
