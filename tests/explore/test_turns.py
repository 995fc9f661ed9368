"""Turns: one computation at a time, and none for a reader who has moved on."""

import threading
import time

import pytest

from boosted_attention.explore.turns import MOST_TABS, SupersededError, Turns


def asking(turns, tab, number, said):
    """A started thread that waits for its turn and writes down what became of it."""

    def ask():
        try:
            with turns.turn(tab, number):
                said.append((tab, number))
        except SupersededError:
            said.append("superseded")

    thread = threading.Thread(target=ask)
    thread.start()
    deadline = time.monotonic() + 5
    while turns.newest(tab) != number and time.monotonic() < deadline:
        time.sleep(0.001)
    return thread


def test_the_newest_question_of_a_tab_takes_the_place_of_those_that_wait_and_of_the_one_that_computes():
    turns, said = Turns(), []
    with turns.turn("a", 1) as check:
        check()
        threads = [asking(turns, "a", 2, said), asking(turns, "b", 1, said), asking(turns, "a", 3, said)]
        with pytest.raises(SupersededError):
            check()
        assert said == []  # the others wait
    for thread in threads:
        thread.join()
    assert sorted(said, key=str) == [("a", 3), ("b", 1), "superseded"]


def test_a_question_that_comes_too_late_is_not_computed():
    turns = Turns()
    with turns.turn("a", 5):
        pass
    with pytest.raises(SupersededError), turns.turn("a", 4):
        pass


def test_what_fails_gives_the_turn_back_and_tabs_are_forgotten():
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns.turn("a", 1):
        raise ZeroDivisionError
    for i in range(2 * MOST_TABS):
        with turns.turn(f"tab {i}", 1):
            pass
    assert turns.newest("a") is None
