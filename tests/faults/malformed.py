"""Malformed command lines, made from the options that the commands themselves declare."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import random
import time
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from boosted_attention.cli.main import COMMANDS, main
from tests.faults.hunt import Hunt
from tests.faults.workshop import Workshop

SECONDS = 5.0  # of one core
NOWHERE = "nowhere/at/all"
WORDS = ("", " ", "x", "ü", "\x1b[2J", "-", "--", "../..", "/dev/null", "\u202e", "None", "NaN", "a" * 5000, "*", "~")
NUMBERS = ("abc", "", "1.5.2", "0x", "--3", "1e", "½", "٣٤x", "nan", "-inf", "9" * 40, "-" + "9" * 40, "1e400", "-1")
# A command with these arguments has something to complain of, whatever else it is given.
WRONG = {
    "reproduce": ["no-such-experiment"],
    "experiments": ["--preset", "no-such-preset"],
    "claims": ["--json", "--markdown"],
    "report": [NOWHERE],
    "results": [NOWHERE],
    "data": [f"text:{NOWHERE}"],
    "train": ["--corpus", f"text:{NOWHERE}"],
    "evaluate": [NOWHERE],
    "generate": [NOWHERE],
    "analyze": [NOWHERE],
    "plan": [NOWHERE],
    "boost": [NOWHERE, "out"],
    "export": [NOWHERE, "out"],
    "finetune": [NOWHERE],
    "explore": [NOWHERE, "--no-browser"],
    "check": ["no-such-layer"],
}


@dataclass(frozen=True)
class Option:
    """An option of a command, with its type."""

    name: str
    kind: Any


@cache
def options_of(command: str) -> tuple[Option, ...]:
    """The options that a command declares, those of its configurations among them."""
    module = importlib.import_module(f"boosted_attention.cli.{command}")
    run: Callable[..., int] = module.prepare([]) if hasattr(module, "prepare") else module.run
    hints = typing.get_type_hints(run, include_extras=False)
    found = []
    for name, parameter in inspect.signature(run).parameters.items():
        kind = hints.get(name, str)
        if is_dataclass(kind):
            of_fields = typing.get_type_hints(kind)
            found += [Option(f"--{f.name.replace('_', '-')}", of_fields[f.name]) for f in fields(kind)]
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            found.append(Option(f"--{name.replace('_', '-')}", kind))
    return tuple(found)


def malformed(draw: random.Random, option: Option) -> list[str]:
    """A use of the option that is wrong, or at least unusual."""
    how = draw.random()
    if how < 0.1:
        return [option.name]  # its value is missing
    if how < 0.2:
        return [option.name + draw.choice("xz_-"), "1"]
    if how < 0.3:
        return [f"{option.name}={draw.choice(WORDS)}"]
    numeric = any(kind in (int, float) for kind in (option.kind, *typing.get_args(option.kind)))
    return [option.name, draw.choice(NUMBERS if numeric and draw.random() < 0.8 else WORDS)]


def arguments(draw: random.Random) -> list[str]:
    """A command line with something wrong in it."""
    if draw.random() < 0.03:
        return [draw.choice(("", "trian", "--", "-x", "--hepl", "\x1b", "TRAIN")), *draw.choices(WORDS, k=2)]
    command = draw.choice(list(COMMANDS))
    chosen = [
        malformed(draw, draw.choice(options_of(command))) for _ in range(draw.randint(0, 3)) if options_of(command)
    ]
    return [command, *WRONG[command], *(word for part in chosen for word in part)]


def refuse(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Give a malformed command line: exit code 2, one line, nothing written, a few seconds."""
    args = arguments(draw)
    if "--help" in args or "-h" in args:
        return None
    out, err, here = io.StringIO(), io.StringIO(), Path.cwd()
    started = time.process_time()
    code: Any = 0
    os.chdir(place)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(args)
    except SystemExit as stop:
        code = stop.code
    finally:
        os.chdir(here)
    spent = time.process_time() - started
    lines = err.getvalue().splitlines()
    left = [str(path.relative_to(place)) for path in place.rglob("*")]
    problems = {
        f"exit code {code}": code != 2,
        f"{len(lines)} lines": len(lines) != 1 or not lines[0].startswith("boosted-attention: "),
        f"printed {out.getvalue()[:80]!r}": bool(out.getvalue()),
        f"left {left}": bool(left),
        f"took {spent:.1f} s": spent > SECONDS,
        "a control character": any(ord(c) < 32 for c in err.getvalue().rstrip("\n")),
    }
    wrong = [what for what, is_so in problems.items() if is_so]
    return f"{args}: {'; '.join(wrong)}: {err.getvalue()[-300:]}" if wrong else None


HUNTS = (
    Hunt(
        name="malformed command lines",
        promise="Bad input is refused with exit code 2 and one line, nothing is written, and it takes five seconds of "
        "one core at most.",
        attempts=1000,
        attempt=refuse,
    ),
)
