"""Signals at any moment, unusual environments, and two of everything at once, with real processes."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.faults.hunt import Hunt
from tests.faults.workshop import Workshop, quiet_environment

PROGRAM = [sys.executable, "-m", "boosted_attention"]


def training(workshop: Workshop, out: Path) -> list[str]:
    """A command that trains a little."""
    sizes = ["--vocab-size", "300", "--d-model", "16", "--n-layers", "2", "--n-heads", "2", "--max-len", "16"]
    length = ["--steps", "40", "--batch-size", "4", "--eval-every", "20", "--checkpoint-every", "5"]
    held = ["--corpus", f"text:{workshop.text}", "--held-out-tokens", "200"]
    return [*PROGRAM, "train", *sizes, *length, *held, "--out", str(out)]


def environment(workshop: Workshop) -> dict[str, str]:
    return {**quiet_environment(), "BOOSTED_ATTENTION_CACHE": str(workshop.cache)}


def heed_interrupts() -> None:
    """Undo what a shell does to the processes that it runs in the background: interrupts are ignored there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Send a signal at any moment, imports included: its exit code, no traceback, and the run goes on."""
    number = draw.choice((signal.SIGINT, signal.SIGTERM))
    process = subprocess.Popen(
        training(workshop, place / "run"),
        env=environment(workshop),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    )
    moment = draw.uniform(0.15, 5.0)  # the first of it is Python's own start
    try:
        _, err = process.communicate(timeout=moment)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        _, err = process.communicate()
    what, said = f"{number.name} after {moment:.2f} s", err.decode(errors="replace")
    allowed = (0, 128 + number, -number)  # the last while Python starts or ends, when the system's own rule holds
    if process.returncode not in allowed or "Traceback" in said:
        return f"{what}: exit code {process.returncode}, {said[-400:]!r}"
    done = subprocess.run(
        [*training(workshop, place / "run"), "--resume"], env=environment(workshop), capture_output=True, check=False
    )
    return None if done.returncode == 0 else f"{what}: continued to {done.returncode}, {done.stderr[-300:]!r}"


ENVIRONMENTS = {
    "ascii": {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    "no home": {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"},
    "odd terminal": {"TERM": "dumb", "COLUMNS": "1", "NO_COLOR": "1"},
    "other clock": {"TZ": "Pacific/Kiritimati", "SOURCE_DATE_EPOCH": "0"},
    "turkish": {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"},
}


def surround(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Evaluate a run in an unusual environment: the same numbers."""
    name = draw.choice(sorted(ENVIRONMENTS))
    run = shutil.copytree(workshop.run, place / "run")
    command = [*PROGRAM, "evaluate", str(run), "--json"]
    usual = environment(workshop)
    outputs = []
    for env in (usual, {**usual, **ENVIRONMENTS[name]}):
        closed = draw.random() < 0.3 and env is not usual
        done = subprocess.run(
            command, env=env, capture_output=True, check=False, stdin=None if closed else subprocess.DEVNULL
        )
        if done.returncode or b"Traceback" in done.stderr:
            return f"{name}: exit code {done.returncode}, {done.stderr[-300:]!r}"
        outputs.append(done.stdout)
    return None if outputs[0] == outputs[1] else f"{name}: {outputs}"


def twice(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Start the same thing twice: one trains and one is refused, or both read; nothing is torn."""
    what = draw.choice(("train", "data", "evaluate while it trains"))
    env = environment(workshop)
    if what == "data":
        env["BOOSTED_ATTENTION_CACHE"] = str(place / "cache")
        commands = [[*PROGRAM, "data", f"text:{workshop.text}", "--vocab-size", "300"]] * 2
    elif what == "train":
        commands = [training(workshop, place / "run")] * 2
    else:
        shutil.copytree(workshop.run, place / "other")
        commands = [training(workshop, place / "run"), [*PROGRAM, "evaluate", str(place / "other")]]
    begun = [subprocess.Popen(c, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for c in commands]
    said = [process.communicate()[1].decode(errors="replace") for process in begun]
    codes = sorted(process.returncode for process in begun)
    expected = ([0, 2], [0, 0]) if what == "train" else ([0, 0],)
    if codes not in expected or any("Traceback" in text for text in said):
        return f"{what}: exit codes {codes}, {[text[-200:] for text in said]}"
    return None


HUNTS = (
    Hunt(
        name="signals",
        promise="SIGINT and SIGTERM at any moment, imports included, end a command without a traceback, and a "
        "training goes on from where it was.",
        attempts=60,
        attempt=interrupt,
    ),
    Hunt(
        name="environments",
        promise="Locale, terminal, home and clock do not change numbers.",
        attempts=40,
        attempt=surround,
    ),
    Hunt(
        name="two at once",
        promise="Two commands that meet on a folder both read, or one writes and the other is refused.",
        attempts=40,
        attempt=twice,
    ),
)
