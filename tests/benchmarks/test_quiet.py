"""Other processes are noticed and named; our own are not held against us."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from benchmarks import quiet
from benchmarks.quiet import DisturbedError, Quiet, Usage, disturbance, usage
from boosted_attention.timing import interleaved

BUSY = "while True: pass"


@pytest.fixture
def stranger():
    """The number of a busy process that is not ours: whoever started it has ended."""
    command = f"{sys.executable} -c '{BUSY}' >/dev/null 2>&1 & echo $!"
    pid = int(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout)
    yield pid
    os.kill(pid, signal.SIGKILL)


def seen(pid: int, deadline: float = 10.0) -> tuple[Usage, Usage]:
    """Readings between which a busy process has had some time, on however busy a machine."""
    before = usage()
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        time.sleep(0.2)
        after = usage()
        if after.others.get(pid, 0.0) - before.others.get(pid, 0.0) > 0.15 * (after.at - before.at) > 0.05:
            return before, after
    raise AssertionError("the busy process was not seen")


def test_a_busy_process_is_named(stranger):
    before, after = (
        replace(reading, others={stranger: reading.others.get(stranger, 0.0)}) for reading in seen(stranger)
    )
    found = disturbance(before, after)
    assert found is not None
    assert found.who.startswith(f"process {stranger} (")
    assert BUSY in found.who
    assert found.share > quiet.LIMIT


def test_measuring_beside_a_busy_process_is_refused_with_one_line(stranger):
    seen(stranger)
    said = []
    with pytest.raises(DisturbedError, match=r"takes \d+\.\d\d of a core, and no ratio is kept above 0.1") as refused:
        Quiet(said.append, patience=0.0).begin()
    assert "\n" not in str(refused.value)


def test_a_process_that_we_started_is_ours():
    before = usage()
    with subprocess.Popen([sys.executable, "-c", BUSY]) as child:
        time.sleep(1.0)
        during = usage()
        child.kill()
    after = usage()
    assert child.pid not in during.others
    assert during.ours - before.ours > 0.1
    assert after.ours >= during.ours  # also when it has ended


def reading(at: float, *, machine: float = 0.0, ours: float = 0.0, other: float | None = None) -> Usage:
    return Usage(at=at, machine=machine, ours=ours, others={} if other is None else {1: other})


def test_a_tenth_of_a_core_is_allowed():
    assert disturbance(reading(0, other=5.0), reading(10, machine=1.0, other=6.0)) is None
    found = disturbance(reading(0, other=5.0), reading(10, machine=1.1, other=6.1))
    assert found is not None
    assert found.share == pytest.approx(0.11)


def test_programs_that_came_and_went_are_noticed():
    found = disturbance(reading(0), reading(10, machine=12.0, ours=10.0))
    assert found is not None
    assert (found.who, found.share) == (quiet.ENDED, pytest.approx(0.2))
    assert disturbance(reading(0), reading(10, machine=10.5, ours=10.0)) is None


class Machine:
    """A made-up machine: a second passes between readings, and another process works in some of them."""

    def __init__(self, busy):
        self.busy, self.now, self.spent = busy, 0, 0.0

    def usage(self) -> Usage:
        self.now += 1
        self.spent += 0.5 if self.busy(self.now) else 0.0
        return reading(self.now, machine=self.spent, other=self.spent)


@pytest.fixture
def machine(monkeypatch):
    def made(busy):
        made_up = Machine(busy)
        monkeypatch.setattr(quiet, "usage", made_up.usage)
        monkeypatch.setattr(quiet.time, "sleep", lambda seconds: None)
        return made_up

    return made


def test_a_disturbed_turn_is_repeated(machine):
    machine(lambda now: now == 6)  # the end of the first turn
    said, calls = [], []
    seconds = interleaved({"a": lambda: calls.append(1)}, 3, umpire=Quiet(said.append))
    assert len(seconds["a"]) == 3
    assert len(calls) == 1 + 4  # one to warm up, one turn again
    assert len(said) == 1
    assert said[0].startswith("a turn is repeated: process 1")


def test_a_turn_that_is_always_disturbed_is_given_up(machine):
    calls = []
    machine(lambda now: now % 5 == 0)  # three readings while waiting, then two in a turn, the first of them busy
    with pytest.raises(DisturbedError, match=r"0\.50 of a core"):
        interleaved({"a": lambda: calls.append(1)}, 3, umpire=Quiet())
    assert len(calls) == 1 + quiet.REPEATS + 1


def test_waiting_ends_when_the_machine_is_quiet(machine):
    made_up, said = machine(lambda now: now < 12), []
    Quiet(said.append).begin()
    assert made_up.now >= 12
    assert [text.partition(":")[0] for text in said] == ["waiting"]
