"""Two processes on two cores against one process with two threads, in whole trainings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.race import Race, Stopwatch
from benchmarks.section import Section, Shown, ratio, table

TOGETHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ONE = "one process, two threads"
WAYS = {
    ONE: ([], {"OMP_NUM_THREADS": "2"}, []),
    "two processes, ddp": (TOGETHER, {"OMP_NUM_THREADS": "1"}, ["--parallel", "ddp"]),
    "two processes, fsdp": (TOGETHER, {"OMP_NUM_THREADS": "1"}, ["--parallel", "fsdp"]),
}
TURNS = 3


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Wall-clock times of the steps of a short training of the mini recipe, start-up and evaluation left out."""

    steps: int
    ways: Race


def train(way: str, steps: int, watch: Stopwatch) -> None:
    """Train in one of the ways, and count the seconds that its steps took."""
    start, environment, options = WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, *start, "-m", "boosted_attention", "train", "--steps", str(steps)]
        command += ["--eval-every", "0", "--held-out-tokens", "2000", *options, "--out", str(run)]
        subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True)
        watch.add(json.loads((run / "result.json").read_text())["seconds"])


def measure(bench: Bench) -> Parallel:
    """Train in all ways, in turns."""
    steps, watch = (2 if bench.quick else 20), Stopwatch("wall")
    candidates = {way: partial(train, way, steps, watch) for way in WAYS}
    return Parallel(steps=steps, ways=bench.race("trainings", candidates, TURNS, until=1.0, clock=watch))


def show(parallel: Parallel) -> Shown:
    """Make the table."""
    rows = [[way, ratio(parallel.ways.ratio(ONE, way))] for way in WAYS]
    text = f"{parallel.steps} steps of the mini recipe on two cores; speed as a multiple of the first way's.\n\n"
    return Shown(text=text + table(["", "speed"], rows))


PARALLEL = Section(name="parallel", title="Several processes", minutes=2.2, result=Parallel, measure=measure, show=show)
