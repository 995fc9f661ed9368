"""Interleaved timing: candidates take turns, and only ratios within a turn count on a machine that others use too."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from boosted_attention.progress import Progress


def interleaved(
    candidates: Mapping[str, Callable[[], object]], repeats: int, progress: Progress = lambda fraction: None
) -> dict[str, list[float]]:
    """Seconds of every candidate in every turn; each turn calls all of them once, in an order drawn anew.

    Args:
        candidates: what is timed, by name; each is called once beforehand to warm up.
        repeats: how many turns.
        progress: told the fraction of turns that are done.
    """
    for run in candidates.values():
        run()
    order, draw = list(candidates), random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for i in range(repeats):
        draw.shuffle(order)
        for name in order:
            started = time.perf_counter()
            candidates[name]()
            seconds[name].append(time.perf_counter() - started)
        progress((i + 1) / repeats)
    return seconds


def ratios_to_first(seconds: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Each candidate's time as a multiple of the first one's, turn by turn: what slows a whole turn cancels."""
    first = next(iter(seconds.values()))
    return {name: [own / base for own, base in zip(values, first, strict=True)] for name, values in seconds.items()}


def median_ratios(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Median of ``ratios_to_first``."""
    return {name: statistics.median(ratios) for name, ratios in ratios_to_first(seconds).items()}
