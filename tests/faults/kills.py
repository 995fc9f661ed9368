"""Kills: a run that is killed anywhere and continued ends in the same bytes as one that was not."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from functools import cache
from pathlib import Path
from typing import Any

from boosted_attention.train import checkpoint
from boosted_attention.train.metrics import read_metrics
from tests.faults.hunt import Hunt
from tests.faults.workshop import Workshop
from tests.train.driver import STEPS, train

OPTIMIZERS = ("adamw", "muon")
MOST_FLUSHES = 60  # of a run, roughly


def end_of_run(folder: Path, steps: int) -> Any:
    """Everything that must be the same: weights, optimizer, history without the clock, scores."""
    found, problems = checkpoint.latest(folder / "checkpoints", "step")
    assert found is not None, problems
    assert found.step == steps
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in read_metrics(folder / "metrics.jsonl")]
    result = json.loads((folder / "result.json").read_text())
    sums = {name: about.sha256 for name, about in found.files.items()}
    return [sums, rows, result["test"], result["best"]["step"], result["probe"]]


def in_process(folder: Path, text: Path, die_at: tuple[str, int] | None, optimizer: str) -> Any:
    """Begin or continue a training in a process of its own."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=train, args=(folder, text, die_at, True), kwargs={"optimizer": optimizer})
    process.start()
    return process


@cache
def undisturbed(workshop: Workshop, optimizer: str) -> tuple[Any, float]:
    """The end of a run that nobody killed, and the seconds it took."""
    folder = workshop.root / f"undisturbed-{optimizer}"
    started = time.monotonic()
    process = in_process(folder, workshop.text, None, optimizer)
    process.join()
    return end_of_run(folder, STEPS), time.monotonic() - started


def kill(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Kill a run up to three times, at any moment or inside a write, then let it end."""
    optimizer = draw.choice(OPTIMIZERS)
    end, seconds = undisturbed(workshop, optimizer)
    folder, moments = place / "run", []
    for _ in range(draw.randint(1, 3)):
        if draw.random() < 0.5:
            moment = draw.uniform(0, seconds)
            process = in_process(folder, workshop.text, None, optimizer)
            process.join(moment)
            if process.is_alive():
                process.kill()
                process.join()
            moments.append(f"after {moment:.3f} s")
        else:
            number = draw.randint(1, MOST_FLUSHES)
            process = in_process(folder, workshop.text, ("flush", number), optimizer)
            process.join()
            moments.append(f"in write {number}")
        if process.exitcode not in (0, -signal.SIGKILL):
            return f"{optimizer}, {moments}: exit code {process.exitcode}"
    process = in_process(folder, workshop.text, None, optimizer)
    process.join()
    if process.exitcode:
        return f"{optimizer}, {moments}: continued to exit code {process.exitcode}"
    return None if end_of_run(folder, STEPS) == end else f"{optimizer}, {moments}: another end"


HUNTS = (
    Hunt(
        name="kills",
        promise="A run that is killed anywhere, up to three times, ends in the same bytes as one that was not.",
        attempts=300,
        attempt=kill,
    ),
)
