"""Records of finished trials: written whole or not at all, checked when they are read, never thrown away."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from boosted_attention import __version__
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.records import to_json
from boosted_attention.storage.documents import DamagedError, is_there, read_json, typed
from boosted_attention.storage.sealing import SEAL, read_sealed, write_sealed
from boosted_attention.storage.writing import free_name
from boosted_attention.validation import InputError, require, shortened

FOLDER = "trials"  # below OUT
OLD_FOLDER = "runs"  # where results lay while trials were named after modules
RESULT = "result.json"  # in a trial's folder


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a finished trial left behind; its fields are the keys of result.json, which is sealed."""

    trial: dict[str, Any]  # the trial's identity
    label: str
    result: Any  # as JSON
    seconds: float
    versions: dict[str, str]
    commit: str | None  # None outside a checkout
    cpu_seconds: float | None = None  # of the processor, in the process that finished it; None in older records
    code: str | None = None  # git's hash of the package's content, which outlives the commit; None in older records

    @property
    def work(self) -> str:
        """Name of what was computed."""
        return self.trial["work"]

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the work."""
        return self.trial["config"]


@dataclass
class Outcome:
    """Records of finished trials by key, and what went wrong with the others."""

    records: dict[str, Record] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # label: what happened
    remarks: list[str] = field(default_factory=list)  # result files that could not be used

    def result(self, trial: Trial) -> Any:
        """The result of a finished trial, as JSON; KeyError if it is not there."""
        return self.records[trial.key].result

    def took(self, trial: Trial) -> float:
        """The seconds of the processor in the process that finished a trial; KeyError if they are not known."""
        seconds = self.records[trial.key].cpu_seconds
        if seconds is None:
            raise KeyError(trial.key)
        return seconds

    def has(self, trials: Sequence[Trial]) -> bool:
        return all(trial.key in self.records for trial in trials)


def write_record(directory: Path, trial: Trial, result: Any, seconds: float, cpu_seconds: float | None = None) -> None:
    """Write what a trial computed, with what made it.

    Args:
        directory: the trial's folder.
        trial: what was done.
        result: as JSON.
        seconds: time that passed in the process that finished it; an attempt that was stopped before is not counted.
        cpu_seconds: time of the processor in the same process.
    """
    record = Record(
        trial=trial.identity,
        label=trial.label,
        result=result,
        seconds=round(seconds, 3),
        versions=versions(),
        commit=commit(),
        code=code(),
        cpu_seconds=None if cpu_seconds is None else round(cpu_seconds, 3),
    )
    write_sealed(directory / RESULT, to_json(record))


def load_record(directory: Path) -> Record:
    """Read the record in a trial's folder; DamagedError if it is not what was written."""
    path = directory / RESULT
    return typed(Record, {key: value for key, value in read_sealed(path).items() if key != SEAL}, path)


def read_record(directory: Path, trial: Trial) -> tuple[Record | None, str | None]:
    """Read a finished trial's record; or None and, if a file is there that does not serve, what is wrong with it."""
    path = directory / trial.key / RESULT
    if not is_there(path):
        return None, None
    try:
        record = load_record(path.parent)
    except DamagedError as problem:
        return None, str(problem)
    if record.trial != trial.identity:
        return None, f"{path} is not the result of this trial"
    return record, None


def stored(trials: Sequence[Trial], out: Path) -> Outcome:
    """What has been computed of these trials."""
    require_layout(out)
    outcome = Outcome()
    for trial in trials:
        record, remark = read_record(out / FOLDER, trial)
        if record is not None:
            outcome.records[trial.key] = record
        outcome.remarks += [remark] if remark else []
    return outcome


def require_layout(out: Path) -> None:
    """Raise InputError for a folder whose results lie where nothing reads them any more."""
    require(
        not any(is_of_old_layout(path) for path in (out / OLD_FOLDER).glob("*/config.json")),
        f"out={str(out)!r} holds results of an older layout ({OLD_FOLDER}/), which this version does not read; "
        "use another folder, or the version that made them",
    )


def is_of_old_layout(path: Path) -> bool:
    """Return whether a config.json is of a trial named after a module, as "module:function"."""
    try:
        return ":" in read_json(path)["work"]
    except (DamagedError, KeyError, TypeError):
        return False


def set_aside(directory: Path, trial: Trial) -> None:
    """Keep a result that does not serve, under another name, with the training behind it."""
    path = directory / trial.key / RESULT
    path.rename(free_name(path))
    training = path.with_name("training")
    if training.exists():  # or the new result would be the old weights again
        training.rename(free_name(training))


def require_one_torch(outcome: Outcome, out: Path) -> None:
    """Raise InputError where results come from several versions of torch, which may differ by more than arms do."""
    made: dict[str, list[str]] = {}
    for key, record in outcome.records.items():
        made.setdefault(f"torch {record.versions['torch']}", []).append(key)
    if len(made) > 1:
        few_first = sorted(made.items(), key=lambda item: len(item[1]))
        listed = "; ".join(f"{torch}: {shortened(keys)}" for torch, keys in few_first)
        raise InputError(f"out={str(out)!r} mixes results of different versions: {listed}; use another folder")


@cache
def versions() -> dict[str, str]:
    """What made a result: this package, Python and the libraries that compute."""
    import platform

    named = {name: version(name) for name in ("torch", "numpy", "scipy")}
    return {"boosted-attention": __version__, "python": platform.python_version(), **named}


@cache
def commit() -> str | None:
    """The checkout's commit, with a + if files differ from it; None outside a checkout."""
    head = git("rev-parse", "HEAD")
    return None if head is None else head + ("+" if git("status", "--porcelain", "--", ".") else "")


@cache
def code() -> str | None:
    """git's hash of this package in the checkout's commit: equal for equal files, whatever the history."""
    return git("rev-parse", "HEAD:./")


def git(*args: str) -> str | None:
    """What git says in the package's folder; None where it refuses or is not there."""
    package = Path(__file__).parents[2]
    try:
        done = subprocess.run(["git", *args], cwd=package, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
