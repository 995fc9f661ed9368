"""A figure as PNG and SVG files, for papers and slides; needs the ``report`` extra."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from boosted_attention.chart import Figure, Panel, names
from boosted_attention.storage.writing import staged_files


def write_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write every figure as NAME.png and NAME.svg, and return the paths; the same figure gives the same bytes.

    Args:
        figures: what to draw.
        folder: where to write, made if it does not exist.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "boosted-attention", "figure.constrained_layout.use": True, "font.size": 10})
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3})
    written = []
    with staged_files(folder) as place:
        for figure in figures:
            columns = min(3, len(figure.panels))
            rows = -(-len(figure.panels) // columns)
            drawn, axes = plt.subplots(rows, columns, figsize=(5.5 * columns, 3.8 * rows), squeeze=False)
            for axis in axes.flat[len(figure.panels) :]:
                axis.set_visible(False)
            colours = {name: f"C{i % 10}" for i, name in enumerate(names(figure))}
            for panel, axis in zip(figure.panels, axes.flat, strict=False):
                draw(panel, axis, colours)
            drawn.suptitle(plain(figure.title))
            for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
                name = f"{figure.name}.{suffix}"
                drawn.savefig(place / name, dpi=150, metadata=metadata)
                written.append(folder / name)
            plt.close(drawn)
    return written


def draw(panel: Panel, axis: Any, colours: dict[str, str]) -> None:
    """Draw one panel on an axis of matplotlib."""
    for series in panel.series:
        look = {"color": colours[series.name], "label": plain(series.name)}
        spread = None
        if series.low is not None and series.high is not None:
            spread = [
                [max(0.0, y - low) for y, low in zip(series.y, series.low, strict=True)],
                [max(0.0, high - y) for y, high in zip(series.y, series.high, strict=True)],
            ]
        if series.style == "bars":
            axis.bar(series.x, series.y, series.width, yerr=spread, capsize=2, **look)
            continue
        line = {"line": "-", "dashes": "--", "points": ""}[series.style]
        marker = "" if len(series.x) > 60 else "o"
        axis.errorbar(series.x, series.y, yerr=spread, marker=marker, ls=line, capsize=2, ms=4, **look)
    for name, value in panel.levels.items():
        axis.axhline(value, color="0.4", ls=":", label=plain(name))
    for name, value in panel.marks.items():
        axis.axvline(value, color="0.4", ls=":", label=plain(name))
    axis.set(xlabel=panel.x_label, ylabel=panel.y_label, title=plain(panel.title))
    if panel.log_x:
        axis.set_xscale("log")
        axis.minorticks_off()
    if panel.ticks is not None:
        labels = [plain(label) for label in panel.ticks.values()]
        slanted = max(map(len, labels), default=0) * len(labels) > 52
        turn = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
        axis.set_xticks(list(panel.ticks), labels, **turn)
    if len(panel.series) + len(panel.levels) > 1:
        axis.legend(fontsize=8)


def plain(text: str) -> str:
    """Replace characters without a glyph, and escape what matplotlib would read as mathematics."""
    known = glyphs()
    return "".join(c if ord(c) in known else "?" for c in text).replace("$", r"\$")


@cache
def glyphs() -> frozenset[int]:
    """Code points of the characters in the font of the figures."""
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())
