"""Who watches a training run."""

from __future__ import annotations

from typing import Protocol

from boosted_attention.train.results import StepRow, ValidationRow


class TrainingObserver(Protocol):
    """Told how a training goes: a terminal, a lab, a test."""

    def start(self, first: int, total: int) -> None:
        """Steps ``first`` to ``total`` are about to be trained."""

    def step(self, row: StepRow) -> None:
        """An update was made."""

    def evaluated(self, row: ValidationRow) -> None:
        """The model was evaluated on the validation split."""

    def remark(self, text: str) -> None:
        """Something happened that a person should know."""


class Unwatched:
    """An observer that does nothing."""

    def start(self, first: int, total: int) -> None: ...
    def step(self, row: StepRow) -> None: ...
    def evaluated(self, row: ValidationRow) -> None: ...
    def remark(self, text: str) -> None: ...
