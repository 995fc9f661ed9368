"""A quiet machine: who else is computing, found in /proc, so that no disturbed turn is kept.

A process counts as ours if it is this one or was started by it. CPU time that no living process accounts for, such as
that of programs which came and went between two looks, is charged to "processes that have ended".
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LIMIT = 0.1  # of a core, above which another process disturbs
WINDOW = 1.0  # seconds over which the use of a core is averaged, where a turn is that long
TICKS = 4  # of the kernel's clock that a disturbance has at least: shorter windows cannot tell less
PATIENCE = 600.0  # seconds to wait for quiet before each turn
REPEATS = 5  # of a turn that was disturbed each time
ENDED = "processes that have ended"


class DisturbedError(RuntimeError):
    """Another process kept the machine busy; the message names it."""


@dataclass(frozen=True)
class Disturbance:
    """Another process, and how much of a core it took."""

    who: str
    share: float

    def __str__(self) -> str:
        return f"{self.who} takes {self.share:.2f} of a core"


@dataclass(frozen=True)
class Usage:
    """CPU seconds so far: of the machine, of this process with all that it started, and of every other process."""

    at: float
    machine: float
    ours: float
    others: dict[int, float]


def usage() -> Usage:
    """Read the CPU time of every process."""
    tick = 1 / os.sysconf("SC_CLK_TCK")
    at = time.monotonic()
    user, nice, system = (int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4])
    own: dict[int, int] = {}
    reaped: dict[int, int] = {}  # of children that have ended
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            pid = int(folder.name)
            parents[pid] = int(fields[1])
            own[pid] = int(fields[11]) + int(fields[12])
            reaped[pid] = int(fields[13]) + int(fields[14])
    us = {pid for pid in parents if descends(pid, parents)}
    return Usage(
        at=at,
        machine=(user + nice + system) * tick,
        ours=sum(own[pid] + reaped[pid] for pid in us) * tick,
        others={pid: ticks * tick for pid, ticks in own.items() if pid not in us},
    )


def descends(pid: int, parents: dict[int, int]) -> bool:
    """Say whether a process is this one, or one that it started, or that those started."""
    while pid in parents:
        if pid == os.getpid():
            return True
        pid = parents[pid]
    return False


def disturbance(before: Usage, after: Usage) -> Disturbance | None:
    """Return the process that took most of a core between two readings, if it took more than is allowed."""
    elapsed = max(after.at - before.at, 1e-9)
    spent = {pid: seconds - before.others.get(pid, 0.0) for pid, seconds in after.others.items()}
    unseen = (after.machine - before.machine) - (after.ours - before.ours) - sum(spent.values())
    allowed = max(LIMIT * elapsed, TICKS / os.sysconf("SC_CLK_TCK"))
    heaviest = max(spent, key=lambda pid: spent[pid], default=None)
    if heaviest is not None and spent[heaviest] > allowed:
        return Disturbance(name_of(heaviest), spent[heaviest] / elapsed)
    if unseen > allowed:
        return Disturbance(ENDED, unseen / elapsed)
    return None


def name_of(pid: int) -> str:
    """Return a process's number and command line, shortened."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
        command = command or Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({command[:60]})"


class Quiet:
    """The umpire that lets a turn count only if no other process took more than a tenth of a core during it.

    Args:
        remark: told when a turn has to wait or to be run again.
        patience: seconds to wait for quiet before each turn.
    """

    def __init__(self, remark: Callable[[str], None] = lambda text: None, patience: float = PATIENCE):
        self.remark, self.patience = remark, patience
        self.before = usage()
        self.found: Disturbance | None = None  # in the turn under way
        self.voided = 0

    def begin(self) -> None:
        """Wait until the machine is quiet.

        Raises:
            DisturbedError: it did not become quiet in time.
        """
        waited_from = time.monotonic()
        self.voided, said = 0, False
        while (found := self.since(WINDOW)) is not None:
            if time.monotonic() - waited_from > self.patience:
                raise DisturbedError(refusal(found))
            if not said:
                self.remark(f"waiting: {found}")
                said = True
        self.before, self.found = usage(), None

    def since(self, seconds: float) -> Disturbance | None:
        """Look at the next seconds of the machine, doing nothing."""
        before = usage()
        time.sleep(seconds)
        return disturbance(before, usage())

    def look(self) -> None:
        """Close the window since the last look, if it is long enough to judge."""
        if time.monotonic() - self.before.at >= WINDOW:
            self.close()

    def close(self) -> None:
        """Keep what disturbed the window since the last look, and open the next one."""
        now = usage()
        self.found = self.found or disturbance(self.before, now)
        self.before = now

    def counts(self) -> bool:
        """Say whether the turn was quiet; if not, wait until the machine is, for the turn is run again.

        Raises:
            DisturbedError: the turn has been disturbed too often, or quiet did not come.
        """
        self.close()
        found, self.found = self.found, None
        if found is None:
            self.voided = 0
            return True
        voided = self.voided + 1
        if voided > REPEATS:
            raise DisturbedError(refusal(found))
        self.remark(f"a turn is repeated: {found}")
        self.begin()
        self.voided = voided
        return False


def refusal(found: Disturbance) -> str:
    """Say why there is no result."""
    return f"{found}, and no ratio is kept above {LIMIT}: end it or wait for its end, then measure again"
