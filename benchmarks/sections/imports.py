"""Imports and the command line, in fresh processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.race import Race, Spread, spread
from benchmarks.section import Section, Shown, ratio, seconds, table

TORCH, PACKAGE, MODEL, HELP = (
    "import torch",
    "import torch, boosted_attention",
    "import torch; from boosted_attention import LanguageModel",
    "boosted-attention --help",
)
COMMANDS = {
    TORCH: ["-c", TORCH],
    PACKAGE: ["-c", PACKAGE],
    MODEL: ["-c", MODEL],
    HELP: ["-m", "boosted_attention", "--help"],
}
TURNS = 7


@dataclass(frozen=True, kw_only=True)
class Imports:
    """CPU seconds of whole processes."""

    processes: Race

    def beyond_torch(self, name: str) -> Spread:
        """Return what a process takes beyond one that imports torch, as a multiple of that."""
        pairs = zip(self.processes.seconds[name], self.processes.seconds[TORCH], strict=True)
        return spread([(own - base) / base for own, base in pairs])

    def help_against_torch(self) -> Spread:
        """Return the time of the command's help as a multiple of importing torch."""
        return self.processes.ratio(HELP, TORCH)


def measure(bench: Bench) -> Imports:
    """Time the processes in turns."""

    def start(arguments: list[str]) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)

    candidates = {name: start(arguments) for name, arguments in COMMANDS.items()}
    return Imports(processes=bench.race("processes", candidates, TURNS, until=1.0))


def show(imports: Imports) -> Shown:
    """Make the table."""
    race = imports.processes
    rows = [[f"`{name}`", seconds(race.median(name)), ratio(race.ratio(name, TORCH))] for name in COMMANDS]
    return Shown(text="CPU seconds of new processes.\n\n" + table(["", "time", f"times `{TORCH}`"], rows))


IMPORTS = Section(name="imports", title="Imports", minutes=0.8, result=Imports, measure=measure, show=show)
