"""The one JSON file: what each section measured, on which machine, merged section by section."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import Machine
from benchmarks.section import Section
from benchmarks.sections import SECTIONS
from boosted_attention.records import from_json, to_json
from boosted_attention.storage.writing import write_json
from boosted_attention.validation import InputError, require_choice

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One section's result."""

    machine: Machine
    minutes: float  # that the section took
    result: Any


@dataclass(kw_only=True)
class Results:
    """All sections that have been measured; ``quick`` says that sizes were tiny and the numbers mean nothing."""

    quick: bool
    sections: dict[str, Measured] = field(default_factory=dict)

    def of(self, section: Section) -> Any:
        """Return a section's result, None if it has not been measured."""
        return self.sections[section.name].result if section.name in self.sections else None

    def save(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"format": FORMAT, "quick": self.quick, "sections": to_json(self.sections)})


def load(path: Path) -> Results:
    """Read the file, with every field checked.

    Raises:
        InputError: it is not what the sections write now.
    """
    try:
        return decode(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError) as error:
        raise InputError(f"{path.name} is not what the sections write now ({error}); remove it and measure") from None


def decode(data: Mapping[str, Any]) -> Results:
    """Return the results that a file's JSON holds, in the order of the sections."""
    stored: dict[str, Any] = data["sections"]
    for name in stored:
        require_choice("section", name, SECTIONS)
    sections = {}
    for name in SECTIONS:
        if name in stored:
            result = from_json(SECTIONS[name].result, stored[name]["result"], f"{name}.result")
            machine = from_json(Machine, stored[name]["machine"], f"{name}.machine")
            sections[name] = Measured(machine=machine, minutes=stored[name]["minutes"], result=result)
    return Results(quick=data["quick"], sections=sections)
