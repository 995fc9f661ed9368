"""Races: candidates take turns, and what counts is the ratio of two of them within a turn."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Median and quartiles of the turns."""

    low: float
    median: float
    high: float

    def times(self, factor: float) -> Spread:
        """Return the same in another unit."""
        return Spread(low=self.low * factor, median=self.median * factor, high=self.high * factor)


@dataclass(frozen=True, kw_only=True)
class Race:
    """Seconds of every candidate in every turn that counted."""

    clock: str  # "CPU" or "wall"
    seconds: dict[str, list[float]]

    def ratio(self, name: str, to: str) -> Spread:
        """Return the time of one candidate as a multiple of another's, turn by turn."""
        return spread([own / base for own, base in zip(self.seconds[name], self.seconds[to], strict=True)])

    def median(self, name: str) -> float:
        """Return the median time of a candidate, in seconds."""
        return statistics.median(self.seconds[name])


def spread(values: list[float]) -> Spread:
    """Return median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return Spread(low=low, median=middle, high=high)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Stopwatch:
    """A clock that candidates move on themselves, by what they measured elsewhere.

    Args:
        name: what it counts, "CPU" or "wall" seconds.
    """

    def __init__(self, name: str):
        self.name, self.total = name, 0.0

    def __call__(self) -> float:
        return self.total

    def add(self, seconds: float) -> None:
        """Move the clock on."""
        self.total += seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        """Move the clock on by the wall-clock time of a block."""
        started = time.perf_counter()
        yield
        self.add(time.perf_counter() - started)


CLOCKS = {"CPU": cpu_seconds, "wall": time.perf_counter}
