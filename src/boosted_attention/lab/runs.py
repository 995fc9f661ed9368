"""A run: one piece of work with one configuration, in a directory named after the hash of all that determines it.

    OUT/runs/<work>-<hash>/   config.json   result.json   (error.txt if the last attempt failed)

``result.json`` appears whole or not at all, and its result is a function of the configuration alone.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from boosted_attention import __version__

# Raised when what a run computes changes its meaning: older results are then redone.
SCHEMA = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """``work`` names the function that does it, "module:function", and ``config`` are its keywords.

    The function is called as ``function(progress, **config)`` and returns what can be written as JSON. One that keeps
    something between attempts has a parameter ``folder`` and is given the run's directory; one that builds on other
    runs names their keys in ``after`` and is given their results as ``earlier``.
    """

    work: str
    config: dict[str, Any]
    after: tuple[str, ...] = ()  # keys of runs whose results it needs
    label: str = ""  # for people; no part of the identity
    seconds: float = 1.0  # expected, for the order of runs and the time left; no part of the identity

    @property
    def identity(self) -> dict[str, Any]:
        needs = {"after": list(self.after)} if self.after else {}
        return {"work": self.work, "schema": SCHEMA, "config": self.config, **needs}

    @property
    def key(self) -> str:
        digest = hashlib.sha256(canonical(self.identity).encode()).hexdigest()
        return f"{self.work.rpartition(':')[2]}-{digest[:16]}"


def canonical(data: Any) -> str:
    """One text for one value, whatever the order of its keys."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


RECORD = {"run": dict, "label": str, "seconds": float, "versions": dict, "sha256": str}  # beside result and commit


def checksum(result: Any) -> str:
    return hashlib.sha256(canonical(result).encode()).hexdigest()


def read_result(directory: Path, run: Run, *, any_version: bool = False) -> tuple[dict[str, Any] | None, str | None]:
    """A finished run's record; or None and, if a file is there that does not serve, what is wrong with it."""
    path = directory / run.key / "result.json"
    if not path.exists():
        return None, None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None, f"{path} is damaged JSON"
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror}"
    whole = isinstance(record, dict) and all(isinstance(record.get(key), kind) for key, kind in RECORD.items())
    if not whole or not {"result", "commit"} <= set(record) or record["sha256"] != checksum(record["result"]):
        return None, f"{path} is damaged: not a whole record"
    if record["run"] != run.identity:
        return None, f"{path} is not the result of this run"
    made_by = record["versions"].get("boosted-attention")
    if made_by != __version__ and not any_version:
        return None, f"{path} was made by boosted-attention {made_by}"
    return record, None


def set_aside(directory: Path, run: Run) -> None:
    """Keep a result that does not serve, under another name."""
    path = directory / run.key / "result.json"
    number = 1
    while (kept := path.with_name(f"result.old-{number}.json")).exists():
        number += 1
    path.rename(kept)
    training = path.with_name("training")
    if training.exists():  # or the new result would be the old weights again
        training.rename(path.with_name(f"training.old-{number}"))


@cache
def versions() -> dict[str, str]:
    import platform

    named = {name: version(name) for name in ("torch", "numpy", "scipy")}
    return {"boosted-attention": __version__, "python": platform.python_version(), **named}


@cache
def commit() -> str | None:
    """The checkout's commit, with a + if files differ from it; None outside a checkout."""
    root = Path(__file__).parent

    def git(*args: str) -> str | None:
        try:
            done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "HEAD")
    return None if head is None else head + ("+" if git("status", "--porcelain", "--", ".") else "")
