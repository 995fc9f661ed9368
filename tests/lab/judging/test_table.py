"""Tables: rows, paired comparisons, and how both are shown."""

import pytest

from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Paired, Table, cell, exactly, over_seeds, render
from boosted_attention.statistics import power_of

GAIN = Quantity("b - a | text", 1.0)
ACCURACY = Quantity("accuracy", 50.0)


def test_cells_make_their_quantities_known():
    table = Table("Title", ["first", "second", "third"], precision=2)
    table.add_row("a | text", [cell(ACCURACY, exactly(49.0)), Cell(over_seeds({0: 1.0, 1: 2.0})), None])
    assert set(table.quantities) == {ACCURACY}
    with pytest.raises(AssertionError, match="b: 1 cells for 3 columns"):
        table.add_row("b", [None])
    text = render(table)
    assert "| a, text | 49.00 (paper 50) | 1.50 [-4.85, 7.85] |  |" in text


def test_differences_are_paired():
    table = Table("Title", [])
    a, b = {0: 1.0, 1: 2.0, 2: 4.0}, {0: 2.0, 1: 3.5, 2: 5.0}
    table.compare([Paired(GAIN, b, a), Paired(Quantity("same"), a, a)])
    gain, same = table.comparisons
    assert gain.difference.mean == pytest.approx(3.5 / 3)
    assert gain.difference.p is not None
    assert same.difference.p is None  # without spread
    assert gain.seeds_needed == 3
    assert table.quantities[GAIN] == gain.difference
    assert "| b - a, text | 1.2 " in render(table)
    assert "seeds the paper's effect needs" in render(table)


def test_a_difference_comes_with_the_effect_that_its_seeds_could_show():
    """None for two seeds, which decide nothing."""
    table = Table("Title", [], precision=2)
    zero = dict.fromkeys(range(3), 0.0)
    table.compare([Paired(GAIN, {0: 1.0, 1: 2.0, 2: 4.0}, zero), Paired(Quantity("short"), {0: 1.0, 1: 2.0}, zero)])
    told, short = (c.could_show for c in table.comparisons)
    assert short is None
    assert told is not None
    assert power_of(told, table.comparisons[0].difference.std, 3) == pytest.approx(0.8)
    heads, _, *rows = render(table).splitlines()[2:]
    column = heads.split(" | ").index("effect the seeds could show, at 5 %")
    assert [row.split(" | ")[column].strip() for row in rows if row] == [f"{told:.2f}", ""]
