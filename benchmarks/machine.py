"""The machine and the versions that a section was measured with."""

from __future__ import annotations

import datetime
import os
import platform
import re
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

LIBRARIES = ("torch", "tokenizers", "transformers", "x-transformers")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What decides about speed, besides our code."""

    cpu: str
    cores: int
    memory_gb: int
    python: str
    versions: dict[str, str]  # of the libraries that are measured or compared with
    date: str

    def __str__(self) -> str:
        libraries = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        hardware = f"{self.cpu}, {self.cores} cores, {self.memory_gb} GB"
        return f"{hardware}; Python {self.python}, {libraries}; {self.date}"


def this_machine() -> Machine:
    """Describe the machine, now."""
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        cpu=model[1] if model else platform.processor(),
        cores=os.cpu_count() or 1,
        memory_gb=round(memory / 2**30),
        python=platform.python_version(),
        versions={name: version(name) for name in LIBRARIES if find_spec(name.replace("-", "_")) is not None},
        date=datetime.date.today().isoformat(),
    )


def cache_bytes() -> int:
    """Return the size of the largest cache, 32 MB where the system does not tell."""
    sizes = [int(p.read_text().strip()[:-1]) for p in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(sizes, default=32 * 1024) * 1024
