"""A figure as SVG inside the page. Colours come from the page's style sheet and so follow light, dark and print."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from boosted_attention.chart import Figure, Panel, Series, bounds, names

WIDTH, HEIGHT = 440, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 10, 26, 44


def draw_figure(figure: Figure) -> list[str]:
    """Draw a figure as one SVG element per panel; texts are escaped.

    Args:
        figure: what to draw.
    """
    legend = names(figure)
    return [draw_panel(panel, legend, figure.title) for panel in figure.panels]


def draw_panel(panel: Panel, legend: list[str], title: str) -> str:
    """Draw one panel; ``legend`` decides the colours of its series, ``title`` names a panel without a title."""
    slanted = panel.ticks is not None and max(map(len, panel.ticks.values()), default=0) * len(panel.ticks) > 52
    bottom = BOTTOM + (46 if slanted else 0)
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
    across = panel.ticks or labelled(ticks(x_low, x_high))
    for value, label in across.items():
        x, y = at_x(value), height - bottom + 16
        turn = f' text-anchor="end" transform="rotate(-45 {x:.1f} {y})"' if slanted else ' text-anchor="middle"'
        parts.append(f'<text class="tick" x="{x:.1f}" y="{y}"{turn}>{escape(label)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {height - bottom}H{WIDTH - RIGHT}"/>')
    for name, value in panel.levels.items():
        y = at_y(value)
        parts.append(f'<path class="level" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="{y - 4:.1f}" text-anchor="end">{escape(name)}</text>')
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
    where = next((label for value, label in (panel.ticks or {}).items() if abs(value - series.x[i]) < 0.5), None)
    where = f"{series.x[i]:.6g}" if where is None else where
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
