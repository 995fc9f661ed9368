"""A hunt: many attempts to break something, each a function of its number, counted and never repeated."""

from __future__ import annotations

import json
import random
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from boosted_attention.storage.writing import write_json
from tests.faults.workshop import Workshop

Attempt = Callable[[random.Random, Workshop, Path], str | None]
"""Try once in an empty folder; return what broke, None if nothing did."""


@dataclass(frozen=True, kw_only=True)
class Hunt:
    """Attempts of one kind.

    Args:
        name: as results call it.
        promise: what is promised, for docs/reliability.md.
        attempts: number at full scale.
        attempt: tries once.
    """

    name: str
    promise: str
    attempts: int
    attempt: Attempt

    def once(self, number: int, workshop: Workshop, place: Path) -> str | None:
        """Make one attempt, which its number decides; an exception of any kind has broken something."""
        place.mkdir(parents=True)
        try:
            return self.attempt(random.Random(f"{self.name} {number}"), workshop, place)
        except Exception:
            return traceback.format_exc()


@dataclass
class Count:
    """How far a hunt is."""

    done: int = 0
    broken: dict[str, str] = field(default_factory=dict)  # number of the attempt: what broke
    seconds: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Count:
        return cls(**json.loads(path.read_text())) if path.exists() else cls()


def go_on(hunt: Hunt, wanted: int, workshop: Workshop, scratch: Path, kept: Path) -> Count:
    """Make the attempts that are not made yet, and keep count in a file.

    Args:
        hunt: what is tried.
        wanted: attempts in all.
        workshop: what is broken.
        scratch: folder for attempts, emptied after each.
        kept: file of the count.
    """
    import shutil

    count = Count.read(kept)
    while count.done < wanted:
        started = time.monotonic()
        place = scratch / hunt.name / str(count.done)
        shutil.rmtree(place, ignore_errors=True)
        broken = hunt.once(count.done, workshop, place)
        if broken is not None:
            count.broken[str(count.done)] = broken
        shutil.rmtree(place, ignore_errors=True)
        count.done += 1
        count.seconds += time.monotonic() - started
        write_json(kept, asdict(count))
    return count
