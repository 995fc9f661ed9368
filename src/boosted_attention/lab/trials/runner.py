"""The runner: each trial in a process of its own with one thread, many at once, finished ones never repeated.

An executor decides where those processes are: on this machine, or on a cluster (``slurm.py``).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from boosted_attention.compat import COMPILER
from boosted_attention.lab.trials.display import Display
from boosted_attention.lab.trials.store import FOLDER, Outcome, load_record, read_record, set_aside, write_record
from boosted_attention.lab.trials.trial import WORKS, Context, Finished, Perform, Settings, Trial
from boosted_attention.storage.writing import write_atomically, write_json

Follow = Callable[[Outcome], Sequence[Trial]]
REPORT_EVERY = 0.2  # seconds between a worker's progress reports


def execute(
    trials: Sequence[Trial],
    out: Path,
    workers: int,
    *,
    settings: Settings | None = None,
    console: Console | None = None,
    executor: Executor | None = None,
    follow: Follow | None = None,
) -> Outcome:
    """Finish every trial that has no result yet, here or where the executor has them done.

    An interrupt ends what is running and leaves everything resumable.

    Args:
        trials: what is to be done.
        out: folder of results.
        workers: trials at a time.
        settings: device, data and model that the trials use.
        console: where progress is shown.
        executor: where trials are done; this machine by default.
        follow: asked after every trial which trials there are now, given the results; where results decide.
    """
    directory = out / FOLDER
    directory.mkdir(parents=True, exist_ok=True)
    outcome = Outcome()
    waiting = without_result(trials, directory, outcome)
    with Display(waiting, finished=len(outcome.records), console=console) as display:
        if outcome.remarks:
            more = f" (and {len(outcome.remarks) - 1} more)" if len(outcome.remarks) > 1 else ""
            note = f"{outcome.remarks[0]}{more}: kept beside it as result.old-N.json, and done again"
            display.console.print(note, markup=False, soft_wrap=True)
        workspace = Workspace(directory=directory, shared=out / "shared", settings=settings or Settings())
        pool = Pool(workspace, workers, executor or LocalExecutor(waiting), display, outcome)
        pool.finish(waiting, follow)
    return outcome


def without_result(trials: Sequence[Trial], directory: Path, outcome: Outcome) -> list[Trial]:
    """Return the trials that are to be done, in the order they begin; the others' records go into the outcome.

    Args:
        trials: those wanted; one that is listed twice counts once.
        directory: folder of all trials.
        outcome: records and remarks on files that do not serve.
    """
    waiting = []
    for trial in {trial.key: trial for trial in trials}.values():
        record, remark = read_record(directory, trial)
        if record is not None:
            outcome.records[trial.key] = record
        else:
            waiting.append(trial)
        if remark is not None:
            set_aside(directory, trial)
            outcome.remarks.append(remark)
    return sorted(waiting, key=order)


def order(trial: Trial) -> tuple[int, int, float]:
    """Put the important first, and the longest of them, so that no core idles at the end."""
    return trial.rank, trial.turn, -trial.seconds


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Folders and settings that all trials share."""

    directory: Path  # of all trials
    shared: Path
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class Job:
    """A trial with everything a worker needs to do it, in whatever process it is done."""

    trial: Trial
    perform: Perform
    workspace: Workspace

    @property
    def directory(self) -> Path:
        return self.workspace.directory / self.trial.key


class Pool:
    """At most ``workers`` trials at a time, in an order that respects what builds on what."""

    def __init__(self, workspace: Workspace, workers: int, executor: Executor, display: Display, outcome: Outcome):
        self.workspace, self.workers, self.executor = workspace, workers, executor
        self.display, self.outcome = display, outcome
        self.given_up: set[str] = set()  # trials that failed, which are tried again next time

    def finish(self, waiting: Sequence[Trial], follow: Follow | None = None) -> None:
        """Do the trials, and those that follow from their results."""
        left, active = list(waiting), list[Active]()
        if follow is not None:
            self._take_up(follow, left, active)
        try:
            while left or active:
                while len(active) < self.workers and (trial := self._next(left, active)) is not None:
                    active.append(self._start(trial))
                if not active:
                    break  # what is left waits for trials that failed
                self.executor.wait([a.process for a in active])
                for a in active:
                    for fraction in a.process.progress():
                        self.display.advance(a.trial, fraction)
                ended = [a for a in active if not a.process.alive()]
                active = [a for a in active if a not in ended]
                for a in ended:
                    self._end(a)
                if ended and follow is not None:
                    self._take_up(follow, left, active)
        finally:
            for a in active:
                a.process.stop()

    def _take_up(self, follow: Follow, left: list[Trial], active: Sequence[Active]) -> None:
        """Add the trials that are new to those that are left; results that are there already may ask for more."""
        known = -1
        while known < len(self.outcome.records):
            known = len(self.outcome.records)
            there = {t.key for t in [*left, *(a.trial for a in active)]} | self.given_up | set(self.outcome.records)
            wanted = {trial.key: trial for trial in follow(self.outcome)}
            more = [trial for key, trial in wanted.items() if key not in there]
            new = without_result(more, self.workspace.directory, self.outcome)
            self.display.expect(new)
            # What is left may have become more important: a decision can open an experiment of a lower rank.
            left[:] = sorted([*(wanted.get(t.key, t) for t in left), *new], key=order)

    def _start(self, trial: Trial) -> Active:
        job = Job(trial=trial, perform=WORKS[trial.work].perform, workspace=self.workspace)
        (job.directory / "error.txt").unlink(missing_ok=True)  # of an earlier attempt
        process = self.executor.start(job)
        self.display.start(trial, process.note)
        return Active(trial=trial, process=process)

    def _next(self, left: list[Trial], active: Sequence[Active]) -> Trial | None:
        """Take the first trial that can begin; one whose predecessors failed is given up.

        One that measures time waits until no other is done on the machine, and others wait for it.
        """
        busy = bool(active) and self.executor.on_one_machine
        if busy and any(WORKS[a.trial.work].alone for a in active):
            return None
        coming = {trial.key for trial in left} | {a.trial.key for a in active}
        for trial in list(left):
            missing = [key for key in trial.after if key not in self.outcome.records]
            if not missing:
                if busy and WORKS[trial.work].alone:
                    return None
                left.remove(trial)
                return trial
            if not coming & set(missing):
                left.remove(trial)
                self.given_up.add(trial.key)
                self.outcome.failures[trial.label] = "what it builds on failed"
                self.display.start(trial)
                self.display.end(trial, 0.0, self.outcome.failures[trial.label])
        return None

    def _end(self, ended: Active) -> None:
        trial = ended.trial
        record, _ = read_record(self.workspace.directory, trial)
        problem = None
        if record is None:
            error = self.workspace.directory / trial.key / "error.txt"
            if error.exists():
                problem = f"{error.read_text(encoding='utf-8').strip().splitlines()[-1]} (see {error})"
            else:
                problem = ended.process.problem()
            self.given_up.add(trial.key)
            self.outcome.failures[trial.label] = problem
        else:
            self.outcome.records[trial.key] = record
        self.display.end(trial, time.monotonic() - ended.started, problem)


class Process(Protocol):
    """A trial being done somewhere."""

    @property
    def note(self) -> str: ...  # the job of a cluster, for people; "" on this machine
    def alive(self) -> bool: ...
    def progress(self) -> Iterable[float]: ...  # what has been reported since the last call
    def problem(self) -> str: ...  # how it ended, where nothing else says why there is no result
    def stop(self) -> None: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Active:
    """A trial that has been started."""

    trial: Trial
    process: Process
    started: float = field(default_factory=time.monotonic)


class Executor(Protocol):
    """Where trials are done."""

    on_one_machine: bool  # whose cores they share

    def start(self, job: Job) -> Process: ...
    def wait(self, processes: Sequence[Any]) -> None: ...  # until something may have happened


class LocalExecutor:
    """Each trial in a process of this machine.

    Workers are forked from a server process that has imported what the trials need, so that they start in milliseconds.
    """

    on_one_machine = True

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.context = multiprocessing.get_context("forkserver")
        works = {WORKS[trial.work].perform.__module__ for trial in trials}
        self.context.set_forkserver_preload([*sorted(works), __name__, COMPILER])

    def start(self, job: Job) -> LocalProcess:
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=carry_out, args=(job, sender.send), daemon=True)
        process.start()
        sender.close()
        return LocalProcess(process, receiver)

    def wait(self, processes: Sequence[LocalProcess]) -> None:
        wait([p.process.sentinel for p in processes] + [p.reports for p in processes], timeout=1.0)


@dataclass(frozen=True)
class LocalProcess:
    """A process of this machine and the pipe it reports through."""

    process: BaseProcess
    reports: Connection
    note: str = ""

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


def carry_out(job: Job, tell: Callable[[float], None]) -> None:
    """Do the trial and write its record, or why there is none; this runs in the worker."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    end_with_parent()
    torch.set_num_threads(1)
    directory, trial = job.directory, job.trial
    directory.mkdir(parents=True, exist_ok=True)
    error = directory / "error.txt"
    write_json(directory / "config.json", trial.identity)
    last = 0.0

    def report(fraction: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_EVERY:
            last = now
            tell(fraction)  # BrokenPipeError if nobody listens any more: the worker then ends

    started, worked = time.monotonic(), time.process_time()
    try:
        context = Context(
            folder=directory,
            shared=job.workspace.shared,
            earlier=tuple(finished(job.workspace.directory / key) for key in trial.after),
            settings=job.workspace.settings,
            progress=report,
        )
        result = job.perform(context, **trial.config)
        write_record(directory, trial, result, time.monotonic() - started, time.process_time() - worked)
        error.unlink(missing_ok=True)  # of an attempt that was stopped and queued again
    except BrokenPipeError:
        raise SystemExit(3) from None
    except Exception:
        write_atomically(error, traceback.format_exc())
        raise SystemExit(1) from None


def end_with_parent() -> None:
    """End this process as soon as the one that started it has ended, however it did.

    A trial may have nothing to report for minutes, and would go on beside the next command's attempt at it.
    """
    parent = multiprocessing.parent_process()
    if parent is None:  # a job of a cluster
        return

    def watch() -> None:
        parent.join()
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def finished(folder: Path) -> Finished:
    """Read a trial that is done."""
    record = load_record(folder)
    return Finished(config=record.config, result=record.result, folder=folder)
