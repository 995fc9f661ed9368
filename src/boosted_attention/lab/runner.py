"""The runner: each run in a process of its own with one thread, many at once, finished ones never repeated.

Where those processes are is an executor's business: on this machine, or on a cluster (``lab/slurm.py``).
"""

from __future__ import annotations

import importlib
import inspect
import json
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from boosted_attention.files import write_atomically, write_json
from boosted_attention.lab.display import Display
from boosted_attention.lab.runs import Run, checksum, commit, read_result, set_aside, versions

# Imported once in the server process that workers are forked from: a worker then starts in milliseconds. An optimiser's
# first step would import torch._dynamo.
PRELOAD = [
    "boosted_attention.lab.runner",
    "boosted_attention.lab.work",
    "boosted_attention.lab.language",
    "torch._dynamo",
]
REPORT_EVERY = 0.2  # seconds between a worker's progress reports


@dataclass
class Outcome:
    """The records of finished runs by key, and what went wrong with the others."""

    records: dict[str, dict[str, Any]]
    failures: dict[str, str]  # label: what happened
    remarks: list[str]  # result files that could not be used

    def result(self, run: Run) -> Any:
        return self.records[run.key]["result"]

    def has(self, runs: Sequence[Run]) -> bool:
        return all(run.key in self.records for run in runs)


def execute(
    runs: Sequence[Run], out: Path, workers: int, console: Console | None = None, executor: Executor | None = None
) -> Outcome:
    """Finish every run that has no result yet, here or where the executor has them done.

    An interrupt ends what is running and leaves everything resumable.
    """
    directory = out / "runs"
    directory.mkdir(parents=True, exist_ok=True)
    distinct = {run.key: run for run in runs}
    outcome = Outcome({}, {}, [])
    waiting = []
    for run in distinct.values():
        record, remark = read_result(directory, run)
        if record is not None:
            outcome.records[run.key] = record
        else:
            waiting.append(run)
        if remark is not None:
            set_aside(directory, run)
            outcome.remarks.append(remark)
    waiting.sort(key=lambda run: -run.seconds)  # the longest first, so that no core idles at the end
    with Display(waiting, finished=len(outcome.records), console=console) as display:
        if outcome.remarks:
            more = f" (and {len(outcome.remarks) - 1} more)" if len(outcome.remarks) > 1 else ""
            note = f"{outcome.remarks[0]}{more}: kept beside it as result.old-N.json, and done again"
            display.console.print(note, markup=False, soft_wrap=True)
        Pool(directory, workers, executor or LocalExecutor(), display, outcome).finish(waiting)
    return outcome


class Pool:
    """At most ``workers`` runs at a time, in an order that respects what builds on what."""

    def __init__(self, directory: Path, workers: int, executor: Executor, display: Display, outcome: Outcome):
        self.directory, self.workers, self.executor = directory, workers, executor
        self.display, self.outcome = display, outcome

    def finish(self, waiting: list[Run]) -> None:
        waiting, jobs = list(waiting), []
        try:
            while waiting or jobs:
                while len(jobs) < self.workers and (run := self._next(waiting, jobs)) is not None:
                    (self.directory / run.key / "error.txt").unlink(missing_ok=True)  # of an earlier attempt
                    jobs.append((run, self.executor.start(run, self.directory / run.key), time.monotonic()))
                    self.display.start(run)
                if not jobs:
                    break  # what is left waits for runs that failed
                self.executor.wait([job for _, job, _ in jobs])
                for run, job, _ in jobs:
                    for fraction in job.progress():
                        self.display.advance(run, fraction)
                ended = [entry for entry in jobs if not entry[1].alive()]
                jobs = [entry for entry in jobs if entry not in ended]
                for run, job, started in ended:
                    self._end(run, job, time.monotonic() - started)
        finally:
            for _, job, _ in jobs:
                job.stop()

    def _next(self, waiting: list[Run], jobs: list[tuple[Run, Job, float]]) -> Run | None:
        """Take the first run that can begin; one whose predecessors failed is given up."""
        coming = {run.key for run in waiting} | {run.key for run, _, _ in jobs}
        for run in list(waiting):
            missing = [key for key in run.after if key not in self.outcome.records]
            if not missing:
                waiting.remove(run)
                return run
            if not coming & set(missing):
                waiting.remove(run)
                self.outcome.failures[run.label] = "what it builds on failed"
                self.display.start(run)
                self.display.end(run, 0.0, self.outcome.failures[run.label])
        return None

    def _end(self, run: Run, job: Job, seconds: float) -> None:
        record, _ = read_result(self.directory, run)
        problem = None
        if record is None:
            error = self.directory / run.key / "error.txt"
            if error.exists():
                problem = f"{error.read_text(encoding='utf-8').strip().splitlines()[-1]} (see {error})"
            else:
                problem = job.problem()
            self.outcome.failures[run.label] = problem
        else:
            self.outcome.records[run.key] = record
        self.display.end(run, seconds, problem)


class Job(Protocol):
    """A run being done somewhere."""

    def alive(self) -> bool: ...
    def progress(self) -> Iterable[float]: ...  # what has been reported since the last call
    def problem(self) -> str: ...  # how it ended, where nothing else says why there is no result
    def stop(self) -> None: ...


class Executor(Protocol):
    """Where runs are done."""

    def start(self, run: Run, directory: Path) -> Job: ...
    def wait(self, jobs: Sequence[Any]) -> None: ...  # until something may have happened


class LocalExecutor:
    """Each run in a process of this machine."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOAD)

    def start(self, run: Run, directory: Path) -> LocalJob:
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=work, args=(run, directory, sender.send), daemon=True)
        process.start()
        sender.close()
        return LocalJob(process, receiver)

    def wait(self, jobs: Sequence[LocalJob]) -> None:
        wait([job.process.sentinel for job in jobs] + [job.reports for job in jobs], timeout=1.0)


@dataclass(frozen=True)
class LocalJob:
    process: BaseProcess
    reports: Connection

    def alive(self) -> bool:
        return self.process.is_alive()

    def progress(self) -> Iterator[float]:
        try:
            while self.reports.poll():
                yield self.reports.recv()
        except EOFError:
            pass  # the worker is at its end

    def problem(self) -> str:
        self.process.join()
        code = self.process.exitcode or 0
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def stop(self) -> None:
        self.process.terminate()
        self.process.join()


def work(run: Run, directory: Path, tell: Callable[[float], None]) -> None:
    """In the worker: do the run and write its result, or why there is none."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    torch.set_num_threads(1)
    directory.mkdir(parents=True, exist_ok=True)
    error = directory / "error.txt"
    write_json(directory / "config.json", run.identity)
    last = 0.0

    def report(fraction: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_EVERY:
            last = now
            tell(fraction)  # BrokenPipeError if nobody listens any more: the worker then ends

    started = time.monotonic()
    module, _, name = run.work.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        given: dict[str, Any] = {}
        if "folder" in inspect.signature(function).parameters:
            given["folder"] = directory
        if run.after:
            paths = [directory.parent / key / "result.json" for key in run.after]
            given["earlier"] = [json.loads(path.read_text(encoding="utf-8"))["result"] for path in paths]
        result = function(report, **given, **run.config)
        record = {
            "run": run.identity,
            "label": run.label,
            "result": result,
            "sha256": checksum(result),
            "seconds": round(time.monotonic() - started, 3),
            "versions": versions(),
            "commit": commit(),
        }
        write_json(directory / "result.json", record)
        error.unlink(missing_ok=True)  # of an attempt that was stopped and queued again
    except BrokenPipeError:
        raise SystemExit(3) from None
    except Exception:
        write_atomically(error, traceback.format_exc())
        raise SystemExit(1) from None
