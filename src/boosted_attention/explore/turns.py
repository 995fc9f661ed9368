"""Turns: one computation at a time, and none for a reader who has moved on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

MOST_TABS = 256  # whose numbers are remembered


class SupersededError(Exception):
    """A newer question of the same tab has taken the place of this one."""


class Turns:
    """Lets questions compute one after the other; the newest of a tab takes the place of its older ones."""

    def __init__(self) -> None:
        self._turn, self._book = Lock(), Lock()
        self._newest: OrderedDict[str, int] = OrderedDict()

    @contextmanager
    def turn(self, tab: str, number: int) -> Iterator[Callable[[], None]]:
        """Wait for the turn of a question, which lasts as long as the block.

        Args:
            tab: whose question it is.
            number: its place among those of the tab.

        Yields:
            A function that raises SupersededError once a newer question is there, for long computations to call.

        Raises:
            SupersededError: a newer question came while this one waited, or before.
        """
        self._announce(tab, number)

        def check() -> None:
            if (self.newest(tab) or number) > number:
                raise SupersededError

        with self._turn:
            check()
            yield check

    def newest(self, tab: str) -> int | None:
        """Return the number of a tab's newest question; None of one that is not remembered."""
        with self._book:
            return self._newest.get(tab)

    def _announce(self, tab: str, number: int) -> None:
        with self._book:
            self._newest[tab] = max(number, self._newest.get(tab, number))
            self._newest.move_to_end(tab)
            if len(self._newest) > MOST_TABS:
                self._newest.popitem(last=False)
