"""The interleaved timer: every candidate once a turn, ratios within a turn."""

import pytest

from boosted_attention.timing import interleaved, median_ratios, quartile_ratios, ratios_to_first


def test_everyone_has_a_turn_in_every_repeat():
    calls, told = [], []
    candidates = {name: lambda name=name: calls.append(name) for name in "abc"}
    seconds = interleaved(candidates, 4, told.append)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 4, "b": 4, "c": 4}
    turns = [calls[i : i + 3] for i in range(0, len(calls), 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len(turns) == 5  # one to warm up
    assert len({tuple(turn) for turn in turns[1:]}) > 1  # in an order drawn anew
    assert told == [0.25, 0.5, 0.75, 1.0]


def test_a_turn_that_does_not_count_is_run_again():
    class Strict:
        looks, verdicts, began = 0, [True, False, False, True], 0

        def begin(self):
            self.began += 1

        def look(self):
            self.looks += 1

        def counts(self):
            return self.verdicts.pop(0)

    umpire, ticks = Strict(), iter(range(100))
    seconds = interleaved({"a": lambda: None, "b": lambda: None}, 2, clock=lambda: next(ticks), umpire=umpire)
    assert seconds == {"a": [1, 1], "b": [1, 1]}
    assert (umpire.began, umpire.looks, umpire.verdicts) == (1, 8, [])
    assert next(ticks) == 16  # two readings for each of eight calls, none while warming up


def test_what_slows_a_turn_cancels():
    seconds = {"first": [1.0, 10.0, 2.0], "second": [2.0, 20.0, 5.0]}
    assert ratios_to_first(seconds) == {"first": [1.0, 1.0, 1.0], "second": [2.0, 2.0, 2.5]}
    assert median_ratios(seconds) == pytest.approx({"first": 1.0, "second": 2.0})


def test_half_of_the_turns_lie_between_the_quartiles():
    seconds = {"first": [1.0] * 5, "second": [5.0, 1.0, 4.0, 2.0, 3.0]}
    assert quartile_ratios(seconds) == {"first": (1.0, 1.0), "second": (2.0, 4.0)}
    assert quartile_ratios({"first": [2.0], "second": [3.0]}) == {"first": (1.0, 1.0), "second": (1.5, 1.5)}
