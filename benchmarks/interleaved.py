"""Benchmarks on a shared machine: candidates take turns, and only ratios to the first are reported."""

import statistics
from collections.abc import Callable

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from boosted_attention.timing import interleaved, ratios_to_first


def compare(title: str, candidates: dict[str, Callable[[], object]], repeats: int = 15) -> dict[str, float]:
    """Print and return each candidate's median time as a multiple of the first one's, with quartiles.

    Args:
        title: heading of the table.
        candidates: what is timed, by name.
        repeats: turns, in each of which every candidate is called once.
    """
    console = Console()
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        seconds = interleaved(candidates, repeats, lambda fraction: bar.update(task, completed=fraction))
    first = next(iter(candidates))
    table = Table(title=f"{title}\ntime as a multiple of {first}'s, {repeats} interleaved repeats")
    for column in ("", "median", "quartiles"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    medians = {}
    for name, ratios in ratios_to_first(seconds).items():
        low, medians[name], high = statistics.quantiles(ratios, n=4)
        table.add_row(name, f"{medians[name]:.2f}", f"{low:.2f} - {high:.2f}")
    console.print(table)
    return medians
