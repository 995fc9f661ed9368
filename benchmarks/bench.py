"""Bench: what a section measures with. It runs races on a quiet machine and shows how far everything is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from benchmarks.quiet import Quiet
from benchmarks.race import CLOCKS, Race, Stopwatch
from boosted_attention.timing import EveryTurnCounts, interleaved
from boosted_attention.train.display import clock as duration

QUICK_TURNS = 2


class Bench:
    """Runs races, and shows a bar with the time left.

    Args:
        minutes: what each section to be measured takes, by name; they weigh the sections in the bar.
        quick: tiny sizes, two turns, and no demand for quiet: such numbers mean nothing.
        console: where the bar is shown; a line for each part where that is no terminal.
    """

    def __init__(self, minutes: Mapping[str, float], *, quick: bool, console: Console):
        self.minutes, self.quick, self.console = minutes, quick, console
        self.umpire = EveryTurnCounts() if quick else Quiet(self.remark)
        self.section, self.done = "", 0.0  # the section under way, and the share of it that is done
        self.before, self.began = 0.0, time.monotonic()  # minutes of the sections before it
        self.bar = Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
        self.task = self.bar.add_task("", total=sum(minutes.values()), left="")

    def __enter__(self) -> Bench:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def start(self, section: str) -> None:
        """Begin a section."""
        self.before += self.minutes.get(self.section, 0.0)
        self.section, self.done = section, 0.0

    def part(self, what: str, until: float) -> None:
        """Say what has just been done, outside of races.

        Args:
            what: the part.
            until: the share of the section that is done.
        """
        self._show(what, until)
        self.done = until
        if not self.console.is_terminal:
            self.remark(f"{self.section}: {what}; {self._left()} left")

    def race(
        self,
        what: str,
        candidates: Mapping[str, Callable[[], object]],
        turns: int,
        *,
        until: float,
        clock: str | Stopwatch = "CPU",
    ) -> Race:
        """Let the candidates take turns, and return their seconds in all turns that counted.

        Args:
            what: the race, for the bar.
            candidates: what is timed, by name.
            turns: how many turns.
            until: the share of the section that is done afterwards.
            clock: "CPU" or "wall" seconds, or a stopwatch that the candidates move on.
        """
        from_, read = self.done, clock if isinstance(clock, Stopwatch) else CLOCKS[clock]
        self._show(what, from_)
        seconds = interleaved(
            candidates,
            QUICK_TURNS if self.quick else turns,
            lambda fraction: self._show(what, from_ + fraction * (until - from_)),
            clock=read,
            umpire=self.umpire,
        )
        self.part(what, until)
        kept = {name: [round(value, 6) for value in values] for name, values in seconds.items()}
        return Race(clock=clock.name if isinstance(clock, Stopwatch) else clock, seconds=kept)

    def remark(self, text: str) -> None:
        """Say something beside the bar."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _show(self, what: str, done: float) -> None:
        self.completed = self.before + done * self.minutes.get(self.section, 0.0)
        text = f"{self.section}: {what}"
        self.bar.update(self.task, completed=self.completed, description=text, left=f"{self._left()} left")

    def _left(self) -> str:
        """Return the time left: by the rate so far once there is one, by the expected minutes before."""
        total = sum(self.minutes.values())
        elapsed = (time.monotonic() - self.began) / 60
        rate = elapsed / self.completed if self.completed > 0.05 * total else 1.0
        return duration(60 * rate * (total - self.completed))
