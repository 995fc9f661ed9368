"""Token files with a progress bar, for ``data``, ``train``, ``evaluate`` and ``analyze``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from boosted_attention.data.tokens import DataConfig, TokenData, prepare
from boosted_attention.train.folder import TrainedRun, require_same_tokens
from boosted_attention.validation import require


def prepared(config: DataConfig, vocab_size: int, console: Console) -> TokenData:
    """Return the tokens of a corpus, and show how far making them is."""
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


def text_of(run: TrainedRun, corpus: str | None, data_root: str | None, field: str, console: Console) -> TokenData:
    """Return the text a run was trained on, or another corpus read with the tokenizer of the run or model."""
    config = run.config.data
    require(
        corpus is not None or bool(run.fingerprint),
        f"{run.folder} is a model without a text of its own; corpus= names one, which its tokenizer reads",
    )
    if corpus is not None:
        config = DataConfig(corpus=corpus, tokenizer=str(Path(run.folder) / "tokenizer.json"), field=field)
    config = replace(config, data_root=data_root or config.data_root)
    data = prepared(config, run.config.model.vocab_size, console)
    require_same_tokens(run, data)
    require(
        corpus is not None or data.fingerprint == run.fingerprint,
        f"{config.corpus} has changed since the run was trained (data {run.fingerprint} then, {data.fingerprint} "
        "now); corpus= reads it as another text",
    )
    return data
