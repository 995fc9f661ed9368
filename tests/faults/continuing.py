"""Commands that are called again after something came between, and end as if nothing had been."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from tests.faults.disks import ERRORS, call, failing
from tests.faults.hunt import Hunt
from tests.faults.kills import end_of_run
from tests.faults.workshop import Workshop, look_at_cache
from tests.processes import environment

STEPS = 9
SMALL = ["--d-model", 16, "--n-layers", 1, "--n-heads", 2, "--max-len", 16, "--vocab-size", 300, "--dropout", 0.1]
SMALL += ["--steps", STEPS, "--batch-size", 4, "--checkpoint-every", 2, "--eval-every", 3, "--horizon", 0]
SMALL += ["--held-out-tokens", 200]
NAMES = ("data", "train", "reproduce", "report")


def command(name: str, workshop: Workshop, place: Path) -> list[Any]:
    """The command, with --resume where it takes that and has something to go on from."""
    corpus = f"text:{workshop.text}"
    if name == "data":
        return ["data", corpus, "--vocab-size", 300]
    if name == "train":
        resume = ["--resume"] if (place / "run" / "config.json").exists() else []
        return ["train", "--corpus", corpus, *SMALL, "--out", place / "run", *resume]
    if name == "reproduce":
        return ["reproduce", "propositions", "--preset", "smoke", "--workers", 1, "--out", place / "results"]
    return ["report", place / "results"]


def do(name: str, workshop: Workshop, place: Path) -> tuple[Any, str]:
    """Run the command, with token files in the place; return its exit code and what it said."""
    with mock.patch.dict(os.environ, BOOSTED_ATTENTION_CACHE=str(place / "cache")):
        return call(command(name, workshop, place))


def end_of(name: str, workshop: Workshop, place: Path) -> Any:
    """What a command that has come to its end leaves, without times."""
    if name == "data":
        return look_at_cache(place / "cache", workshop)
    if name == "train":
        return end_of_run(place / "run", STEPS)
    files = ("report.html",) if name == "report" else ("results.json", "tables.md")
    return [(place / "results" / file).read_text() for file in files]


def prepare_place(name: str, workshop: Workshop, place: Path) -> None:
    """Put there what the command reads."""
    if name == "report":
        shutil.copytree(workshop.results, place / "results", ignore=shutil.ignore_patterns("report.html"))


@cache
def undisturbed(name: str, workshop: Workshop) -> tuple[Any, int]:
    """The end of a command that nothing came between, and the number of its operations on files."""
    place = workshop.root / f"undisturbed-{name}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    prepare_place(name, workshop, place)
    with failing(place, 0, 0) as state:
        code, said = do(name, workshop, place)
    assert code == 0, said
    return end_of(name, workshop, place), state.count


def again(name: str, workshop: Workshop, place: Path, what: str) -> str | None:
    """Call the command once more; return what is wrong with its end."""
    code, said = do(name, workshop, place)
    if code != 0:
        return f"{what}: called again, exit code {code}, {said[-300:]!r}"
    same = end_of(name, workshop, place) == undisturbed(name, workshop)[0]
    return None if same else f"{what}: called again, another end"


def break_disk_for_a_while(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Let a command fail at one of its operations: one line; then let it go on."""
    name, number = draw.choice(NAMES), draw.choice(ERRORS)
    prepare_place(name, workshop, place)
    at = draw.randint(1, undisturbed(name, workshop)[1])
    with failing(place, at, number):
        code, said = do(name, workshop, place)
    what = f"{name}, {errno.errorcode[number]} from operation {at} on"
    lines = [line for line in said.splitlines() if line.startswith("boosted-attention: ")]
    if "Traceback" in said or (code != 0 and (code != 2 or len(lines) != 1)):
        return f"{what}: exit code {code}, {said[-300:]!r}"
    return again(name, workshop, place, what)


def start(name: str, workshop: Workshop, place: Path) -> subprocess.Popen:
    """Start the command as a user would, with those that it starts in its group."""
    words = [sys.executable, "-m", "boosted_attention", *map(str, command(name, workshop, place))]
    return subprocess.Popen(
        words,
        env=environment(BOOSTED_ATTENTION_CACHE=str(place / "cache")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@cache
def seconds_of(name: str, workshop: Workshop) -> float:
    """The time that the command takes, its imports included."""
    place = workshop.root / f"timed-{name}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    prepare_place(name, workshop, place)
    started = time.monotonic()
    assert start(name, workshop, place).wait() == 0
    return time.monotonic() - started


def kill_and_call_again(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Kill a command and all that it started, at any moment, up to twice; then let it come to its end."""
    name = draw.choice(NAMES)
    prepare_place(name, workshop, place)
    moments = []
    for _ in range(draw.randint(1, 2)):
        moments.append(draw.uniform(0, seconds_of(name, workshop)))
        process = start(name, workshop, place)
        with suppress(subprocess.TimeoutExpired):
            process.wait(moments[-1])
        with suppress(ProcessLookupError):  # all of them have come to their end
            os.killpg(process.pid, signal.SIGKILL)
        if process.wait() not in (0, -signal.SIGKILL):
            return f"{name}, killed after {moments}: exit code {process.returncode}"
    return again(name, workshop, place, f"{name}, killed after {moments}")


HUNTS = (
    Hunt(
        name="disks that mend",
        promise="A training, a cache, a reproduction or a report that a broken disk has stopped with one line goes on "
        "when it is mended, and ends as if nothing had been.",
        attempts=60,
        attempt=break_disk_for_a_while,
    ),
    Hunt(
        name="kills of other commands",
        promise="Preparing a text, training from the command line, reproducing and reporting: killed with all they "
        "started, and called again, they end as if nothing had been.",
        attempts=60,
        attempt=kill_and_call_again,
    ),
)
