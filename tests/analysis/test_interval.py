"""Intervals as they are shown."""

from boosted_attention.analysis.interval import Interval


def test_intervals_are_shown_where_there_is_one():
    assert Interval(mean=0.5, low=0.25, high=0.75, n=3).shown() == "0.5000 [0.2500, 0.7500]"
    assert Interval(mean=0.5, low=0.5, high=0.5, n=1).shown(2) == "0.50"
