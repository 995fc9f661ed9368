"""Charts drawn into the page."""

import re

import pytest

from boosted_attention.chart import Figure, Panel, Series, bounds, measured, names
from boosted_attention.report.svg import HEIGHT, LINE, WIDTH, draw_figure, ticks
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


@pytest.mark.parametrize(("falls", "place"), [(True, 'x="60"'), (False, f'x="{WIDTH - 10}" text-anchor="end"')])
def test_the_name_of_a_level_stands_where_no_curve_does(falls, place):
    losses = [5.0, 4.2, 3.7, 3.5, 3.45] if falls else [3.45, 3.5, 3.7, 4.2, 5.0]
    curve = Series(name="loss", x=[0, 1, 2, 3, 4], y=losses)
    panel = Panel(x_label="step", y_label="loss", series=[curve], levels={"where it ends": 3.45})
    (svg,) = draw_figure(Figure(name="f", title="t", caption="", panels=[panel]))
    (found,) = re.findall(r'<text class="tick" ([^>]*?) y="[\d.]+">where it ends', svg)
    assert found == place


def drawn(labels):
    """A panel with a point at each named place, and the place of the last point."""
    series = [Series(name="a", x=list(range(len(labels))), y=[1.0] * len(labels), style="points")]
    panel = Panel(x_label="", y_label="y", series=series, ticks=dict(enumerate(labels)))
    (svg,) = draw_figure(Figure(name="f", title="t", caption="", panels=[panel]))
    return svg


def test_long_names_of_ticks_stand_in_lines_that_fit():
    svg = drawn(["half as wide again", "half as many layers again", "twice the tokens"])
    assert "rotate(-45" not in svg
    assert ">half as many layers</text>" in svg
    assert ">again</text>" in svg
    places = [float(x) for x in re.findall(r'x="([\d.]+)" y="\d+" text-anchor="middle">[a-z]', svg)]
    assert min(places) > 0.14 * WIDTH  # half of what a name may take lies on either side
    assert max(places) < 0.86 * WIDTH
    height = int(re.search(r'viewBox="0 0 \d+ (\d+)"', svg)[1])
    assert height == HEIGHT + LINE


def test_names_that_do_not_fit_are_slanted_and_have_room():
    names = ["FLOP-matched width", "time-matched width", *(f"rival {i}" for i in range(11))]
    svg = drawn(names)
    assert svg.count("rotate(-45") == len(names)
    height = int(re.search(r'viewBox="0 0 \d+ (\d+)"', svg)[1])
    assert height >= HEIGHT + 46


def test_the_tip_of_a_point_names_the_nearest_tick():
    """Also where ticks stand closer than the width of a bar."""
    series = [Series(name="a", x=[0.25, 0.5, 1.0], y=[1.0, 2.0, 3.0])]
    ticks = {0.25: "x 0.25", 0.5: "x 0.5", 1.0: "x 1"}
    panel = Panel(x_label="", y_label="y", series=series, ticks=ticks, log_x=True)
    (svg,) = draw_figure(Figure(name="f", title="t", caption="", panels=[panel]))
    assert all(f"a, {name}: {i}" in svg for i, name in enumerate(ticks.values(), 1))
