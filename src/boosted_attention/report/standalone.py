"""A figure as one SVG file that needs nothing else: the panels of the report's renderer, a legend and a style."""

from __future__ import annotations

import re
from html import escape

from boosted_attention.chart import Figure, names
from boosted_attention.report.svg import HEIGHT, WIDTH, draw_figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#666666")  # safe for most eyes
COLUMNS = 2
LINE = 20  # height of a line of the legend
CHARACTER = 7  # width, about
STYLE = (
    "text { fill: #222; font: 12px sans-serif } .tick { fill: #555; font-size: 11px } .name { font-weight: 600 }"
    " .label { text-anchor: middle } .grid { stroke: #ddd } .axis { stroke: #555 }"
    " .level { stroke: #555; stroke-dasharray: 2 4 }"
    " .line, .dashes, .whisker { fill: none; stroke: currentColor; stroke-width: 1.8 }"
    " .dashes { stroke-dasharray: 5 4 } .dot { fill: currentColor } .bar { fill: currentColor; fill-opacity: .8 }"
    " .bars-series .whisker { stroke: #222 }"
)


def standalone(figure: Figure) -> str:
    """Return a figure as the text of an SVG file, the same for the same figure.

    Args:
        figure: what to draw.
    """
    panels = draw_figure(figure)
    heights = [float(re.search(r'viewBox="0 0 \d+ (\d+)"', panel)[1]) for panel in panels]  # type: ignore[index]
    columns, height = min(COLUMNS, len(panels)), max(heights, default=float(HEIGHT))
    legend, used = drawn_legend(names(figure), columns * WIDTH)
    total = used + height * -(-len(panels) // columns)
    placed = [
        panel.replace(
            "<svg ",
            f'<svg x="{WIDTH * (i % columns)}" y="{used + height * (i // columns):g}" '
            f'width="{WIDTH}" height="{own:g}" ',
            1,
        )
        for i, (panel, own) in enumerate(zip(panels, heights, strict=True))
    ]
    colours = " ".join(f".s{i} {{ color: {colour} }}" for i, colour in enumerate(COLOURS))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * WIDTH} {total:g}" '
        f'width="{columns * WIDTH}" height="{total:g}">\n<title>{escape(figure.title)}</title>\n'
        f'<style>{STYLE} {colours}</style>\n<rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join([*legend, *placed])
        + "\n</svg>\n"
    )


def drawn_legend(entries: list[str], width: int) -> tuple[list[str], int]:
    """Draw the legend in as many lines as it needs; return it with the height that it takes."""
    if len(entries) < 2:
        return [], 0
    parts, x, y = [], 10, 5
    for i, entry in enumerate(entries):
        needed = 30 + CHARACTER * len(entry)
        if x + needed > width and x > 10:
            x, y = 10, y + LINE
        parts.append(f'<rect class="bar s{i % len(COLOURS)}" x="{x}" y="{y + 3}" width="10" height="10"/>')
        parts.append(f'<text x="{x + 15}" y="{y + 12}">{escape(entry)}</text>')
        x += needed
    return parts, y + LINE
