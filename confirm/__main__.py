"""Repeat shipped results whose code is in no history: the numbers must be the same to the last digit.

python -m confirm results/forms

A record names the commit that made it and the content of the package there. Where the history has neither, one record
of each kind (commit, work and model) is repeated by the code as it is now: of a training its beginning, up to the
first evaluation after the start; the whole training where a record keeps no more than its end; of step times a new
race, whose ratios cannot be the same. What came out goes into confirmed.json beside the results, and a test compares.
Kinds that stand there are not repeated; of one that comes out otherwise the next record is tried.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from boosted_attention.lab.trials.store import RESULT, Record, commit, load_record
from boosted_attention.lab.trials.trial import Settings, canonical
from boosted_attention.lab.work.language import trainer_of
from boosted_attention.lab.work.timing import step_seconds
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.storage.writing import write_json
from boosted_attention.timing import median_ratios
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.observer import Unwatched
from boosted_attention.train.results import ValidationRow

CONFIRMED = "confirmed.json"
TIMED = "language.time"
ROOT = Path(__file__).parents[1]


def main() -> int:
    """Confirm a folder of results and return the exit code: 1 if a kind has no record that came out the same."""
    parser = argparse.ArgumentParser(
        prog="python -m confirm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of results")
    parser.add_argument("--workers", type=int, default=2, help="trainings at a time, one thread each")
    options = parser.parse_args()
    by = commit()
    if by is None or by.endswith("+"):
        parser.error("src differs from its commit, or there is none: commit first, so that a commit can be named")
    place = options.folder / CONFIRMED
    found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    console = Console(stderr=True)
    left = [paths for kind, paths in lost(options.folder).items() if not kind_of_any(found, options.folder, kind)]
    while left:
        first = [paths[0] for paths in left]
        for path, ours in track(repeated(first, options.workers), total=len(first), console=console):
            record = load_record(path.parent)
            if ours["comes_out"] == shown(record) or record.work == TIMED:
                found[path.parent.name] = {**ours, "commit": by}
                write_json(place, dict(sorted(found.items())))
            else:
                console.print(f"{record.label}: {ours['comes_out']} instead of {shown(record)}", markup=False)
        left = [rest for paths in left if paths[0].parent.name not in found and (rest := paths[1:])]
    missing = [paths for kind, paths in lost(options.folder).items() if not kind_of_any(found, options.folder, kind)]
    for paths in missing:
        console.print(f"not confirmed: {load_record(paths[0].parent).label} and {len(paths) - 1} more", markup=False)
    return int(bool(missing))


def kind_of(record: Record) -> str:
    """What one repeated record speaks for: commit, work and model."""
    return canonical([record.commit, record.work, record.config.get("model")])


def kind_of_any(found: dict[str, Any], folder: Path, kind: str) -> bool:
    """Say whether a confirmed record is of this kind."""
    return any(kind_of(load_record(folder / "trials" / key)) == kind for key in found)


def lost(folder: Path) -> dict[str, list[Path]]:
    """The records whose code the history does not have, by kind; those of one kind in the order of their hashes."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"trials/*/{RESULT}")):
        record = load_record(path.parent)
        if not in_history(record.commit, record.code):
            kinds.setdefault(kind_of(record), []).append(path)
    return kinds


@cache
def in_history(commit: str | None, code: str | None) -> bool:
    """Say whether a commit is an ancestor of this one, or the package had this content in one that is."""
    if commit is not None and git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0:
        return True
    return code is not None and code in contents()


@cache
def contents() -> set[str]:
    """git's hashes of the package in all commits of the history."""
    commits = git("rev-list", "HEAD").stdout.split()
    asked = "".join(f"{name}:src/boosted_attention\n" for name in commits)
    return set(git("cat-file", "--batch-check=%(objectname)", asked=asked).stdout.split())


def git(*args: str, asked: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *args], cwd=ROOT, input=asked, capture_output=True, text=True, check=False)


def shown(record: Record) -> Any:
    """The part of a result that is repeated: (step, validation loss); of step times the ratios."""
    if record.work == TIMED:
        return record.result["measured"]
    if record.work == "language.sweep":
        best = record.result["best"]
        return [best["step"], best["validation_loss"]]
    return record.result["curve"][1]


def repeated(paths: Sequence[Path], workers: int) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each record's file with what came out now; step times last, while nothing else is done."""
    timed = [path for path in paths if load_record(path.parent).work == TIMED]
    with ProcessPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        begun = {pool.submit(again, path): path for path in paths if path not in timed}
        for done in as_completed(begun):
            yield begun[done], done.result()
    torch.set_num_threads(1)
    for path in timed:
        yield path, again(path)


def again(path: Path) -> dict[str, Any]:
    """Repeat what a record tells, as far as it is compared."""
    record = load_record(path.parent)
    config, comes_out = record.config, None
    if record.work == TIMED:
        models = {label: LanguageModelConfig.from_dict(model) for label, model in config["models"]}
        comes_out = median_ratios(step_seconds(models, TrainingConfig(**config["training"]), config["repeats"]))
    else:
        until = Until(shown(record)[0])
        with tempfile.TemporaryDirectory() as folder:
            try:
                trainer_of(Path(folder), **config, settings=Settings(), observer=until).run()
            except Reached as reached:
                comes_out = [reached.row.step, reached.row.validation_loss]
    return {"label": record.label, "comes_out": comes_out}


class Reached(Exception):  # noqa: N818
    """The evaluation that is compared has been made."""

    def __init__(self, row: ValidationRow):
        super().__init__(row.step)
        self.row = row


class Until(Unwatched):
    """Ends a training at an evaluation."""

    def __init__(self, step: int):
        self.last = step

    def evaluated(self, row: ValidationRow) -> None:
        if row.step == self.last:
            raise Reached(row)


if __name__ == "__main__":
    sys.exit(main())
