"""LiveLine: a training run in a terminal, or as a line now and then where there is none."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from boosted_attention.train.results import StepRow, ValidationRow

QUIET = 10.0  # seconds between lines without a terminal


class LiveLine:
    """Shows loss, tokens per second and time left, and a line for every evaluation.

    Args:
        console: where to show it.
        header: said once, before everything else.
    """

    def __init__(self, console: Console, header: str = ""):
        self.console, self.header = console, header
        self.bar: Progress | None = None

    def __enter__(self) -> LiveLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def start(self, first: int, total: int) -> None:
        self.announce()
        self.total, self.first, self.began = total, first, time.monotonic()
        self.tokens_before: int | None = None
        self.spoke = self.began
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                console=self.console,
                transient=True,
            )
            self.task = self.bar.add_task("training", total=total, completed=first, note="")
            self.bar.start()

    def announce(self) -> None:
        """Say once what is being trained."""
        header, self.header = self.header, ""
        if header:
            self.remark(header)

    def step(self, row: StepRow) -> None:
        now, step = time.monotonic(), row.step
        if self.tokens_before is None:  # the first step has the start-up in it
            self.tokens_before, self.began, self.first = row.tokens, now, step
        passed = max(now - self.began, 1e-9)
        speed = (row.tokens - self.tokens_before) / passed
        left = clock((self.total - step) * passed / max(step - self.first, 1)) if step > self.first else "?"
        note = f"step {step}/{self.total}  loss {row.loss:.3f}  {speed:,.0f} tokens/s  {left} left"
        if self.bar is not None:
            self.bar.update(self.task, completed=step, note=note)
        elif now - self.spoke >= QUIET:
            self.spoke = now
            self.console.print(note, markup=False, highlight=False)

    def evaluated(self, row: ValidationRow) -> None:
        self.announce()
        bits = row.validation_bits_per_byte
        more = "" if bits is None else f", {bits:.3f} bits per byte"
        text = f"step {row.step}: validation loss {row.validation_loss:.4f}"
        self.remark(f"{text}, perplexity {row.validation_perplexity:.2f}{more}")

    def remark(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss, or m:ss below an hour."""
    seconds = round(seconds)
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
