"""Token files with a progress bar: what ``data``, ``train`` and ``evaluate`` begin with."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from boosted_attention.data.tokens import DataConfig, TokenData, prepare


def prepared(config: DataConfig, vocab_size: int, console: Console) -> TokenData:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    tasks = {}

    def report(what: str, fraction: float) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=1.0)
            if console.is_terminal:
                bar.start()  # only now: what comes from the cache shows nothing
        bar.update(tasks[what], completed=fraction)

    try:
        return prepare(config, vocab_size, report)
    finally:
        bar.stop() if console.is_terminal and tasks else None
