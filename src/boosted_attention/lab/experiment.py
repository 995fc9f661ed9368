"""The protocol of an experiment: a module with a TITLE, ``runs``, ``collect`` and ``render``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table

Results = Callable[[Run], Any]  # a run's result


class Experiment(Protocol):
    """What a module in ``experiments/`` offers.

    One whose table makes sense with some of its runs also has ``needed(preset)``, the runs it cannot do without; its
    ``collect`` leaves out what is not there, for which ``results`` raises KeyError.
    """

    TITLE: str

    def runs(self, preset: Preset) -> list[Run]:
        """Everything to be computed; runs that another experiment has too are done once."""
        ...

    def collect(self, preset: Preset, results: Results) -> Table:
        """The numbers, with intervals, beside the paper's."""
        ...

    def render(self, table: Table) -> str:
        """The table as Markdown."""
        ...
