"""Interleaved timing: candidates take turns, and only ratios within a turn count on a machine that others use too."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from boosted_attention.progress import Progress


class Umpire(Protocol):
    """Whoever decides which turns count."""

    def begin(self) -> None:
        """Do what has to be done before the first turn."""

    def look(self) -> None:
        """Look around after a candidate; the time this takes is nobody's."""

    def counts(self) -> bool:
        """Say at the end of a turn whether it counts; one that does not is run again."""
        ...


class EveryTurnCounts:
    """The umpire of a machine about which nothing is asked."""

    def begin(self) -> None:
        """Do nothing."""

    def look(self) -> None:
        """Do nothing."""

    def counts(self) -> bool:
        """Let the turn count."""
        return True


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    repeats: int,
    progress: Progress = lambda fraction: None,
    *,
    clock: Callable[[], float] = time.perf_counter,
    umpire: Umpire | None = None,
) -> dict[str, list[float]]:
    """Seconds of every candidate in every turn; each turn calls all of them once, in an order drawn anew.

    Args:
        candidates: what is timed, by name; each is called once beforehand to warm up.
        repeats: how many turns that count.
        progress: told the fraction of turns that are done.
        clock: returns seconds, read before and after each candidate.
        umpire: decides which turns count; every one by default.
    """
    umpire = umpire or EveryTurnCounts()
    for run in candidates.values():
        run()
    order, draw = list(candidates), random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    umpire.begin()
    done = 0
    while done < repeats:
        draw.shuffle(order)
        turn = {}
        for name in order:
            started = clock()
            candidates[name]()
            turn[name] = clock() - started
            umpire.look()
        if umpire.counts():
            for name, taken in turn.items():
                seconds[name].append(taken)
            done += 1
            progress(done / repeats)
    return seconds


def ratios_to_first(seconds: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Each candidate's time as a multiple of the first one's, turn by turn: what slows a whole turn cancels."""
    first = next(iter(seconds.values()))
    return {name: [own / base for own, base in zip(values, first, strict=True)] for name, values in seconds.items()}


def median_ratios(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Median of ``ratios_to_first``."""
    return {name: statistics.median(ratios) for name, ratios in ratios_to_first(seconds).items()}


def quartile_ratios(seconds: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """First and third quartile of ``ratios_to_first``, between which half of the turns lie."""
    found = {name: np.quantile(ratios, (0.25, 0.75)) for name, ratios in ratios_to_first(seconds).items()}
    return {name: (float(low), float(high)) for name, (low, high) in found.items()}
