"""Sinks: other tools that get a copy of a run's metrics.

metrics.jsonl is what counts. A sink that fails costs its copy and nothing else: training goes on without it.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from boosted_attention.storage.writing import write_atomically
from boosted_attention.train.results import StepRow, ValidationRow
from boosted_attention.validation import require, require_choice

Row = tuple[int, Mapping[str, float]]  # a step and its numbers
COLUMNS = tuple(f.name for kind in (StepRow, ValidationRow) for f in fields(kind) if f.name not in ("step", "batch"))


class Sink(Protocol):
    """A tool that shows or keeps metrics."""

    def begin(self, run: str, config: Mapping[str, Any], earlier: Sequence[Row]) -> None:
        """Begin a run, or go on with one: hold its earlier rows once, and no later ones.

        Args:
            run: name of the run, which no run in another folder has.
            config: its configuration.
            earlier: rows up to the checkpoint that it goes on from; none if it begins.
        """
        ...

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take in a row."""
        ...

    def finish(self) -> None:
        """Write down what is still held back."""
        ...


class CsvSink:
    """A table with a column per number, written anew when a run goes on.

    Args:
        folder: folder of the run, in which metrics.csv is written.
    """

    def __init__(self, folder: Path):
        self.path = folder / "metrics.csv"
        self.file = None

    def begin(self, run: str, config: Mapping[str, Any], earlier: Sequence[Row]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("step", *COLUMNS), *(line(*row) for row in earlier)])
        write_atomically(self.path, text.getvalue())
        self.file = self.path.open("a", newline="", encoding="utf-8")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        assert self.file is not None, "begin first"
        csv.writer(self.file, lineterminator="\n").writerow(line(step, values))
        self.file.flush()

    def finish(self) -> None:
        if self.file is not None:
            self.file.close()


def line(step: int, values: Mapping[str, float]) -> list[float | str]:
    """Return a row of the table, with empty places where there is no number."""
    return [step, *(values.get(name, "") for name in COLUMNS)]


class TensorBoardSink:
    """Files of TensorBoard, which is told to drop the steps that come again.

    Args:
        folder: folder of the run, in which the folder tensorboard is made.
    """

    def __init__(self, folder: Path):
        self.folder = folder / "tensorboard"
        self.board: Any = None

    def begin(self, run: str, config: Mapping[str, Any], earlier: Sequence[Row]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        begins_late = not any(self.folder.glob("events.*"))
        self.board = SummaryWriter(self.folder, purge_step=earlier[-1][0] + 1 if earlier and not begins_late else 0)
        if begins_late:
            for step, values in earlier:
                self.log(step, values)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.board.add_scalar(name, value, step)

    def finish(self) -> None:
        self.board.close()


class TrackioSink:
    """A run of trackio's project boosted-attention, in trackio's own place; rows that it has are not sent again.

    A resumed run repeats what it had done beyond its checkpoint, number by number: those rows may stay.

    Args:
        folder: folder of the run, which trackio does not need.
    """

    project = "boosted-attention"

    def __init__(self, folder: Path):
        self.run: Any = None
        self.held: set[tuple[int, bool]] = set()  # rows it has: step, and whether it is an evaluation

    def begin(self, run: str, config: Mapping[str, Any], earlier: Sequence[Row]) -> None:
        import trackio  # pyright: ignore[reportMissingImports]  # an extra
        from trackio.sqlite_storage import SQLiteStorage  # pyright: ignore[reportMissingImports]

        with redirect_stdout(io.StringIO()):
            self.run = trackio.init(
                project=self.project,
                name=run,
                config=dict(config),
                resume="allow",  # also of a run that ended before its first checkpoint
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
            rows = SQLiteStorage.get_logs(self.project, run, run_id=self.run.id)
        self.held = {(row["step"], is_evaluation(row)) for row in rows}
        for row in earlier:
            self.log(*row)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if (step, is_evaluation(values)) not in self.held:
            self.run.log(dict(values), step=step)

    def finish(self) -> None:
        import trackio  # pyright: ignore[reportMissingImports]  # an extra

        with redirect_stdout(io.StringIO()):
            trackio.finish()


def is_evaluation(values: Mapping[str, Any]) -> bool:
    """Say whether a row is of an evaluation; the other kind is of an update."""
    return "validation_loss" in values


@dataclass(frozen=True)
class SinkEntry:
    """How a sink is made, and the package and extra it needs; None if it needs none."""

    make: Callable[[Path], Sink]
    package: str | None


SINKS = {
    "tensorboard": SinkEntry(TensorBoardSink, "tensorboard"),
    "trackio": SinkEntry(TrackioSink, "trackio"),
    "csv": SinkEntry(CsvSink, None),
}


def require_sinks(names: Iterable[str]) -> None:
    """Raise InputError unless there are sinks of these names, with the packages they need."""
    for name in names:
        require_choice("log_to", name, SINKS)
        package = SINKS[name].package
        require(
            package is None or find_spec(package) is not None,
            f"log_to={name!r} needs {package}: pip install 'boosted-attention[{package}]'",
        )


class Copies:
    """Hands rows on to sinks; one that fails gets no more of them, and that is said once.

    Args:
        names: names of the sinks.
        folder: folder of the run.
        config: its configuration.
        remark: called with a line where a sink has failed.
    """

    def __init__(self, names: Iterable[str], folder: Path, config: Mapping[str, Any], remark: Callable[[str], None]):
        self.sinks = {name: SINKS[name].make(folder) for name in names}
        place = str(folder.resolve())
        self.run = f"{folder.resolve().name}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
        self.config, self.remark = config, remark

    def begin(self, earlier: Iterable[Mapping[str, Any]]) -> None:
        """Begin, behind rows that metrics.jsonl has already."""
        rows = [numbers_of(row) for row in earlier]
        self._each(lambda sink: sink.begin(self.run, self.config, rows))

    def log(self, row: Mapping[str, Any]) -> None:
        """Hand on a row of metrics.jsonl."""
        step, values = numbers_of(row)
        self._each(lambda sink: sink.log(step, values))

    def finish(self) -> None:
        """End all copies."""
        self._each(lambda sink: sink.finish())

    def _each(self, do: Callable[[Sink], None]) -> None:
        for name, sink in list(self.sinks.items()):
            try:
                do(sink)
            except Exception as problem:  # whatever another tool may raise
                del self.sinks[name]
                with suppress(Exception):
                    sink.finish()
                first = next(iter(str(problem).splitlines()), type(problem).__name__)
                self.remark(f"{name} failed and gets no more rows, metrics.jsonl has all: {first}")


def numbers_of(row: Mapping[str, Any]) -> Row:
    """Return the step and the numbers of a row of metrics.jsonl, without what is neither, such as its batch."""
    return row["step"], {name: v for name, v in row.items() if isinstance(v, int | float) and name != "step"}
