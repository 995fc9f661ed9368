"""Trials as jobs of a Slurm cluster, submitted through submitit, with the same directories, results and resume.

A job that Slurm preempts or that reaches its time limit is queued again and goes on from what its trial has saved.
``squeue``, which needs no accounting database, tells the state of jobs.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boosted_attention.lab.trials.runner import Job, carry_out
from boosted_attention.storage.writing import write_atomically
from boosted_attention.validation import InputError, is_count, require

POLL = 1.0  # seconds between questions to the queue
AT_ONCE = 1000  # jobs in the queue, unless a number of workers is given
PATIENCE = 20.0  # seconds for an answer
PROGRESS = "progress.txt"


class Submission:
    """What a job of the cluster does. submitit asks ``checkpoint`` what to queue when time runs out: the same again."""

    def __call__(self, job: Job) -> None:
        path = job.directory / PROGRESS
        try:
            carry_out(job, lambda fraction: write_atomically(path, f"{fraction:.4f}\n"))
        finally:
            path.unlink(missing_ok=True)

    def checkpoint(self, job: Job) -> Any:
        import submitit

        return submitit.helpers.DelayedSubmission(Submission(), job)


class SlurmExecutor:
    """Each trial as a job of its own.

    Args:
        out: folder of the reproduction, seen by all nodes; logs go to its ``slurm`` folder.
        partition: of the cluster; its default one if None.
        minutes: time limit of a job.
        gpus_per_trial: GPUs of a job.
    """

    on_one_machine = False

    def __init__(self, out: Path, *, partition: str | None, minutes: int, gpus_per_trial: int):
        self.queued: set[str] = set()  # jobs that have not ended
        require(is_count(minutes), f"minutes={minutes} must be at least 1")
        require(gpus_per_trial >= 0, f"gpus_per_trial={gpus_per_trial} must not be negative")
        require(
            shutil.which("sbatch") is not None,
            "executor=slurm: there is no Slurm on this machine (sbatch is not found); executor=local runs here",
        )
        try:
            import submitit
        except ImportError:
            raise InputError("executor=slurm needs submitit (pip install 'boosted-attention[slurm]')") from None
        require_partition(partition)
        self.logs = (out / "slurm").absolute()
        self.submitted = submitit.SlurmExecutor(folder=self.logs, max_num_timeout=100)
        options: dict[str, Any] = {"time": minutes, "cpus_per_task": 1, "ntasks_per_node": 1}
        options |= {"partition": partition} if partition else {}
        options |= {"gres": f"gpu:{gpus_per_trial}"} if gpus_per_trial else {}
        self.submitted.update_parameters(**options, additional_parameters={"requeue": True, "open-mode": "append"})

    def start(self, job: Job) -> SlurmJob:
        """Submit the trial, unless it is in the queue already: whoever submitted it may have been killed."""
        workspace = replace(
            job.workspace, directory=job.workspace.directory.absolute(), shared=job.workspace.shared.absolute()
        )  # a job runs in a folder of its own
        job = replace(job, workspace=workspace)
        job.directory.mkdir(parents=True, exist_ok=True)
        name = f"{job.trial.key}-{hashlib.sha256(str(job.directory).encode()).hexdigest()[:8]}"
        queued = (ask("squeue", "--noheader", "--format=%i", "-n", name) or "").split()
        number = queued[0] if queued else self._submit(job, name)
        self.queued.add(number)
        note = f"job {number}, which was in the queue already" if queued else f"job {number}"
        return SlurmJob(number, job.directory, self, note)

    def _submit(self, job: Job, name: str) -> str:
        self.submitted.update_parameters(job_name=name)
        try:
            return self.submitted.submit(Submission(), job).job_id
        except Exception as error:  # submitit's own, with sbatch's words in it
            raise InputError(f"executor=slurm: {str(error).strip().splitlines()[-1]}") from None

    def wait(self, processes: Sequence[SlurmJob]) -> None:
        time.sleep(POLL)
        listed = ask("squeue", "--noheader", "--format=%i")
        if listed is not None:  # else the controller is busy, which says nothing about the jobs
            self.queued = set(listed.split())


@dataclass
class SlurmJob:
    number: str
    directory: Path
    executor: SlurmExecutor
    note: str

    def alive(self) -> bool:
        return self.number in self.executor.queued

    def progress(self) -> Iterator[float]:
        try:
            yield float((self.directory / PROGRESS).read_text())
        except (OSError, ValueError):
            return

    def problem(self) -> str:
        state = state_of(self.number)
        if state not in (None, "COMPLETED", "FAILED"):
            return f"job {self.number} ended as {state}"
        log = self.executor.logs / f"{self.number}_0_log.err"
        said = log.read_text(errors="replace").strip() if log.exists() else ""
        last = f": {said.splitlines()[-1]}" if said else ""
        return f"job {self.number} ended without a result{last} (its log is {log})"

    def stop(self) -> None:
        ask("scancel", self.number)


def require_partition(partition: str | None) -> None:
    known = [name.rstrip("*") for name in (ask("sinfo", "--noheader", "--format=%P") or "").split()]
    require(bool(known), "executor=slurm: the cluster does not answer (sinfo shows no partition)")
    require(
        partition is None or partition in known,
        f"partition={partition!r} is not one of the cluster's: {', '.join(known)}",
    )


def ask(*command: str) -> str | None:
    """What a command of Slurm says; None if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None


def state_of(number: str) -> str | None:
    """How Slurm says a job stands or ended; None where it has forgotten it."""
    shown = ask("scontrol", "show", "job", number) or ""
    return next((word.partition("=")[2] for word in shown.split() if word.startswith("JobState=")), None)
