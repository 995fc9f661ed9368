"""What a person sees while trials go on: bars in a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from boosted_attention.lab.trials.trial import Trial
from boosted_attention.train.display import clock


class Display:
    """Told of every start, advance and end; shows counts, a bar per running job and the time left."""

    def __init__(self, trials: list[Trial], finished: int, console: Console | None = None):
        self.console = console or Console(stderr=True)
        self.total, self.finished, self.failed = len(trials) + finished, finished, 0
        self.expected = {trial.key: trial.seconds for trial in trials}
        self.done_seconds = 0.0
        self.fractions: dict[str, float] = {}
        self.started = time.monotonic()
        self.bars: Progress | None = None
        self.tasks: dict[str, TaskID] = {}
        if self.console.is_terminal and trials:
            self.bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                console=self.console,
                transient=True,
            )
            self.overall = self.bars.add_task("all trials", total=1.0, note="")

    def __enter__(self) -> Display:
        if self.bars is not None:
            self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bars is not None:
            self.bars.stop()

    def expect(self, trials: Sequence[Trial]) -> None:
        """Count trials in that follow from what has been done."""
        self.total += len(trials)
        self.expected |= {trial.key: trial.seconds for trial in trials}

    def start(self, trial: Trial, note: str = "") -> None:
        self.fractions[trial.key] = 0.0
        if self.bars is None and note:
            self.console.print(f"{trial.label}: {note}", markup=False, soft_wrap=True)
        if self.bars is not None:
            self.tasks[trial.key] = self.bars.add_task(trial.label, total=1.0, note="")

    def advance(self, trial: Trial, fraction: float) -> None:
        self.fractions[trial.key] = fraction
        if self.bars is not None:
            self.bars.update(self.tasks[trial.key], completed=fraction)
        self._update()

    def end(self, trial: Trial, seconds: float, problem: str | None) -> None:
        self.fractions.pop(trial.key, None)
        self.done_seconds += self.expected[trial.key]
        self.finished += problem is None
        self.failed += problem is not None
        if self.bars is not None:
            self.bars.remove_task(self.tasks.pop(trial.key))
            if problem is not None:
                self.console.print(f"FAILED {trial.label}: {problem}", markup=False, soft_wrap=True)
        else:
            what = "done" if problem is None else f"FAILED ({problem})"
            count = f"[{self.finished + self.failed}/{self.total}]"
            self.console.print(
                f"{count} {trial.label}: {what}, {seconds:.1f} s; {self.left()} left", markup=False, soft_wrap=True
            )
        self._update()

    def left(self) -> str:
        """Time left, from the work done so far against what was expected."""
        total = sum(self.expected.values())
        done = self._done()
        if done <= 0:
            return "?"
        return clock((time.monotonic() - self.started) * (total - done) / done)

    def _done(self) -> float:
        """Expected seconds of the work that is done."""
        return self.done_seconds + sum(self.expected[key] * part for key, part in self.fractions.items())

    def _update(self) -> None:
        if self.bars is None:
            return
        note = f"{self.finished}/{self.total}" + (f", {self.failed} failed" if self.failed else "")
        fraction = self._done() / max(sum(self.expected.values()), 1e-9)
        self.bars.update(self.overall, completed=fraction, note=f"{note}, {self.left()} left")
