"""Token files with a progress bar: what ``data``, ``train`` and ``evaluate`` begin with."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from boosted_attention.data.tokens import DataConfig, TokenData, prepare


def prepared(config: DataConfig, vocab_size: int, console: Console) -> TokenData:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks = {}

        def report(what: str, fraction: float) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=1.0)
            bar.update(tasks[what], completed=fraction)

        return prepare(config, vocab_size, report)
