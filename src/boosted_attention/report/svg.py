"""A figure as SVG inside the page. Colours come from the page's style sheet and so follow light, dark and print."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from html import escape

from boosted_attention.chart import Figure, Panel, Series, bounds, names

WIDTH, HEIGHT = 440, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 10, 26, 44
CHARACTER, LINE = 6, 13  # width of a character and height of a line of ticks, about


def draw_figure(figure: Figure) -> list[str]:
    """Draw a figure as one SVG element per panel; texts are escaped.

    Args:
        figure: what to draw.
    """
    legend = names(figure)
    return [draw_panel(panel, legend, figure.title) for panel in figure.panels]


def draw_panel(panel: Panel, legend: list[str], title: str) -> str:
    """Draw one panel; ``legend`` decides the colours of its series, ``title`` names a panel without a title."""
    named = None if panel.ticks is None else in_lines(panel.ticks)
    bottom = BOTTOM + (0 if panel.ticks is None else room_below(panel.ticks, named))
    height = HEIGHT + bottom - BOTTOM
    x_low, x_high, y_low, y_high = bounds(panel)

    def at_x(value: float) -> float:
        if panel.log_x:
            fraction = (math.log(value) - math.log(x_low)) / (math.log(x_high) - math.log(x_low))
        else:
            fraction = (value - x_low) / (x_high - x_low)
        return LEFT + fraction * (WIDTH - LEFT - RIGHT)

    def at_y(value: float) -> float:
        return height - bottom - (value - y_low) / (y_high - y_low) * (height - bottom - TOP)

    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(panel.title or title)}">'
    ]
    if panel.title:
        parts.append(f'<text class="name" x="{LEFT}" y="16">{escape(panel.title)}</text>')
    for value, label in labelled(ticks(y_low, y_high)).items():
        y = at_y(value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for value, label in (panel.ticks or labelled(ticks(x_low, x_high))).items():
        x, y = at_x(value), height - bottom + 16
        if panel.ticks is not None and named is None:
            turn = f'text-anchor="end" transform="rotate(-45 {x:.1f} {y})"'
            parts.append(f'<text class="tick" x="{x:.1f}" y="{y}" {turn}>{escape(label)}</text>')
            continue
        for i, line in enumerate([label] if named is None else named[value]):
            place = f'x="{x:.1f}" y="{y + LINE * i}" text-anchor="middle"'
            parts.append(f'<text class="tick" {place}>{escape(line)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {height - bottom}H{WIDTH - RIGHT}"/>')
    points = [(at_x(x), at_y(y)) for series in panel.series for x, y in zip(series.x, series.y, strict=True)]
    for name, value in panel.levels.items():
        y = at_y(value)
        parts.append(f'<path class="level" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick" {beside_points(name, y, points)} y="{y - 4:.1f}">{escape(name)}</text>')
    for name, value in panel.marks.items():
        x = at_x(value)
        parts.append(f'<path class="level" d="M{x:.1f} {TOP}V{height - bottom}"/>')
        right = x > (LEFT + WIDTH) / 2  # then the text goes to the left, where there is room
        place = f'x="{x - 5:.1f}" text-anchor="end"' if right else f'x="{x + 5:.1f}"'
        parts.append(f'<text class="tick" {place} y="{(TOP + height - bottom) / 2:.1f}">{escape(name)}</text>')
    for series in panel.series:
        parts.append(draw_series(series, legend.index(series.name), panel, at_x, at_y))
    middle = (TOP + height - bottom) / 2
    parts.append(
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{height - 6}">{escape(panel.x_label)}</text>'
    )
    parts.append(
        f'<text class="label" x="13" y="{middle}" transform="rotate(-90 13 {middle})">{escape(panel.y_label)}</text>'
    )
    return "".join(parts) + "</svg>"


def beside_points(name: str, y: float, points: Sequence[tuple[float, float]]) -> str:
    """Return the place of a level's name: the end of the line above which fewer points lie, the right one of equals."""
    near = [x for x, point in points if y - 2 * LINE < point <= y]
    width = CHARACTER * len(name)
    at_left, at_right = sum(x < LEFT + width for x in near), sum(x > WIDTH - RIGHT - width for x in near)
    return f'x="{LEFT + 4}"' if at_left < at_right else f'x="{WIDTH - RIGHT}" text-anchor="end"'


def in_lines(names: Mapping[float, str]) -> dict[float, list[str]] | None:
    """Names of ticks in lines that fit beside each other; None where a word is too long for that."""
    room = (WIDTH - LEFT - RIGHT) // CHARACTER // max(len(names), 1) - 1
    lines = {value: textwrap.wrap(name, max(room, 1), break_long_words=False) or [""] for value, name in names.items()}
    return None if any(len(line) > room for own in lines.values() for line in own) else lines


def room_below(names: Mapping[float, str], lines: Mapping[float, list[str]] | None) -> int:
    """Height that names of ticks need beyond that of one line: in lines, or slanted where there are none."""
    if lines is not None:
        return LINE * (max(map(len, lines.values()), default=1) - 1)
    return max(46, math.ceil(CHARACTER * max(map(len, names.values())) * math.sqrt(0.5)) - 10)


def draw_series(
    series: Series, index: int, panel: Panel, at_x: Callable[[float], float], at_y: Callable[[float], float]
) -> str:
    """Draw one series in its colour; ``at_x`` and ``at_y`` give the place of a value in the drawing."""
    parts = [f'<g data-series="{index}" class="s{index % 8} {series.style}-series">']
    points = [(at_x(x), at_y(y)) for x, y in zip(series.x, series.y, strict=True)]
    if series.style in ("line", "dashes") and len(points) > 1:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path class="{series.style}" d="{path}"/>')
    whiskers = []
    if series.low is not None and series.high is not None:
        for (x, _), low, high in zip(points, series.low, series.high, strict=True):
            top, bottom = at_y(high), at_y(low)
            if bottom - top > 0.5:
                whiskers.append(f'<path class="whisker" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>')
    if series.style != "bars":
        parts += whiskers
    many = len(points) > 60
    for i, (x, y) in enumerate(points):
        tip = escape(describe(series, i, panel), quote=True)
        if series.style == "bars":
            half = abs(at_x(series.x[i] + series.width / 2) - at_x(series.x[i] - series.width / 2)) / 2
            base = at_y(0.0)
            top, size = min(y, base), abs(base - y)
            parts.append(
                f'<rect class="bar" x="{x - half:.1f}" y="{top:.1f}" width="{2 * half:.1f}" height="{size:.1f}" '
                f'data-tip="{tip}"/>'
            )
        else:
            parts.append(f'<circle class="dot{" faint" * many}" cx="{x:.1f}" cy="{y:.1f}" r="3" data-tip="{tip}"/>')
    if series.style == "bars":  # intervals are drawn over the bars
        parts += whiskers
    return "".join(parts) + "</g>"


def describe(series: Series, i: int, panel: Panel) -> str:
    """The text of a point's tip: series, place, value and interval."""
    at = series.x[i]
    where = f"{at:.6g}"
    if panel.ticks:
        nearest = min(panel.ticks, key=lambda value: abs(value - at))
        where = panel.ticks[nearest] if abs(nearest - at) < 0.5 else where  # bars stand beside their tick
    text = f"{series.name}, {where}: {series.y[i]:.4g}"
    if series.low is not None and series.high is not None and series.high[i] > series.low[i]:
        text += f" [{series.low[i]:.4g}, {series.high[i]:.4g}]"
    return text


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two bounds."""
    rough = (high - low) / 5
    size = 10 ** math.floor(math.log10(rough))
    step = next(s * size for s in (1, 2, 5, 10) if s * size >= rough)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def labelled(values: list[float]) -> dict[float, str]:
    """Label ticks with as many decimals as tell them apart."""
    step = values[1] - values[0] if len(values) > 1 else 1.0
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return {value: f"{value:.{decimals}f}" for value in values}
