"""Charts drawn into the page."""

import pytest

from boosted_attention.chart import Figure, Panel, Series, bounds, measured, names
from boosted_attention.report.svg import draw_figure, ticks
from boosted_attention.statistics import estimate


def test_charts_hold_all_they_draw():
    values = [estimate([1.0, 2.0, 3.0]), estimate([2.0, 2.5, 3.0])]
    bars = measured("a < b", [0, 1], values, "bars")
    panel = Panel(x_label="x & y", y_label="y", series=[bars, Series(name="c", x=[2], y=[-1.0])], levels={"l": 9.0})
    x_low, x_high, y_low, y_high = bounds(panel)
    assert x_low < -0.4
    assert x_high > 2
    assert y_low < min(-1.0, values[0].low)
    assert y_high > 9.0
    (svg,) = draw_figure(Figure(name="f", title="t", caption="", panels=[panel]))
    assert "a &lt; b, 0: 2 [" in svg
    assert "x &amp; y" in svg
    assert svg.count("<rect") == 2
    assert names(Figure(name="f", title="t", caption="", panels=[panel, panel])) == ["a < b", "c"]
    assert ticks(0.0, 1.0) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(-3.0, 12.0)[0] == 0
