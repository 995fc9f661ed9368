"""A trial: one work with one configuration, in a directory named after the hash of both.

    OUT/trials/<work>-<hash>/   config.json   result.json   (error.txt if the last attempt failed)

A work is named by what it computes, never by where its code lies: moving or renaming a module orphans no result. Its
schema is a number that is raised when the same configuration begins to mean something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boosted_attention.progress import Progress
from boosted_attention.validation import require_choice


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What trials are told that decides nothing about their results."""

    device: str = "cpu"
    """Where language models train."""
    data_root: str | None = None
    """Folder of corpora by name; the environment's BOOSTED_ATTENTION_DATA by default."""
    model: str | None = None
    """Folder of the pretrained model that is fine-tuned."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """An earlier trial that another one builds on."""

    config: Mapping[str, Any]
    result: Any  # as JSON
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a work may use besides its configuration."""

    folder: Path
    """The trial's own folder: what it keeps between attempts."""
    shared: Path
    """A folder that all trials of a reproduction share."""
    earlier: tuple[Finished, ...] = ()
    """The trials named in ``after``, in that order."""
    settings: Settings = Settings()
    progress: Progress = lambda fraction: None


Perform = Callable[..., Any]  # (context, **config) -> a result that can be written as JSON


@dataclass(frozen=True, kw_only=True)
class Work:
    """Something the lab can compute."""

    name: str
    schema: int
    perform: Perform
    alone: bool = False  # whether no other trial may be done on the machine meanwhile, since it measures time


WORKS: dict[str, Work] = {}


def work(name: str, *, schema: int = 1, alone: bool = False) -> Callable[[Perform], Perform]:
    """Register a function ``perform(context, **config)`` as the work called ``name``.

    Args:
        name: what it computes, such as "language.train".
        schema: a number to be raised when results for the same configuration change their meaning.
        alone: whether it measures time, and has a machine to itself.
    """

    def register(perform: Perform) -> Perform:
        assert name not in WORKS, f"two works are called {name!r}"
        WORKS[name] = Work(name=name, schema=schema, perform=perform, alone=alone)
        return perform

    return register


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One work with one configuration.

    Args:
        work: a name of WORKS.
        config: the work's keywords, as JSON values.
        after: keys of trials whose results it needs; they are finished first, and are part of what it is.
        label: its name for people.
        group: name shared by trials that differ in seed or text only.
        seconds: expected duration, for the order of trials and the time left.
        rank: importance of its experiment: those of a lower rank begin first.
        turn: importance inside an experiment: of one rank those of a lower turn begin first, and of these the longest.
    """

    work: str
    config: dict[str, Any]
    after: tuple[str, ...] = ()
    label: str = ""
    group: str = ""
    seconds: float = 1.0
    rank: int = 0
    turn: int = 0

    def __post_init__(self) -> None:
        require_choice("work", self.work, WORKS)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the result."""
        needs = {"after": list(self.after)} if self.after else {}
        return {"work": self.work, "schema": WORKS[self.work].schema, "config": self.config, **needs}

    @property
    def key(self) -> str:
        """Name of the trial's folder."""
        digest = hashlib.sha256(canonical(self.identity).encode()).hexdigest()
        return f"{self.work}-{digest[:16]}"


def canonical(data: Any) -> str:
    """Write a JSON value as one text, whatever the order of its keys."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
