"""Timing on a shared machine: candidates take turns, and only ratios to the first are reported."""

import random
import statistics
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import track
from rich.table import Table


def compare(title: str, candidates: dict[str, Callable[[], object]], repeats: int = 15) -> dict[str, float]:
    """Print and return each candidate's median time as a multiple of the first one's, with quartiles.

    Each repeat runs all candidates once, in random order, and a ratio is taken within a repeat, so that slow drifts of
    the machine cancel.
    """
    for run in candidates.values():
        run()  # warm up
    baseline, order = next(iter(candidates)), list(candidates)
    ratios: dict[str, list[float]] = {name: [] for name in candidates}
    console = Console()
    for _ in track(range(repeats), description=title, console=console, transient=True):
        random.shuffle(order)
        seconds = {}
        for name in order:
            start = time.perf_counter()
            candidates[name]()
            seconds[name] = time.perf_counter() - start
        for name in candidates:
            ratios[name].append(seconds[name] / seconds[baseline])
    table = Table(title=f"{title}\ntime as a multiple of {baseline}'s, {repeats} interleaved repeats")
    for column in ("", "median", "quartiles"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    medians = {}
    for name, values in ratios.items():
        low, medians[name], high = statistics.quantiles(values, n=4)
        table.add_row(name, f"{medians[name]:.2f}", f"{low:.2f} - {high:.2f}")
    console.print(table)
    return medians
