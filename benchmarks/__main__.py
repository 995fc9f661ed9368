"""The command line of the benchmarks.

python -m benchmarks                     everything: benchmarks/results.json, docs/benchmarks.md and its plots
python -m benchmarks steps decoding      these sections anew, beside what the JSON has of the others
python -m benchmarks --page-only         the page from the JSON, nothing measured
python -m benchmarks --quick             tiny sizes into out/benchmarks, to try the benchmarks themselves
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.bench import Bench
from benchmarks.machine import this_machine
from benchmarks.page import must_show, write
from benchmarks.quiet import DisturbedError
from benchmarks.results import Measured, Results, load
from benchmarks.sections import SECTIONS
from boosted_attention.validation import InputError, require, require_choice

ROOT = Path(__file__).parent.parent
TRIAL = ROOT / "out" / "benchmarks"  # of quick numbers


def main(args: Sequence[str] | None = None) -> int:
    """Measure, write and return the exit code: 0, 1 where the machine was not quiet, 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", help=f"sections to measure, all by default: {', '.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, into out/benchmarks")
    parser.add_argument("--page-only", action="store_true", help="the page from the JSON, without measuring")
    given = parser.parse_args(args)
    path, docs = (TRIAL / "results.json", TRIAL) if given.quick else (ROOT / "benchmarks/results.json", ROOT / "docs")
    console = Console(stderr=True)
    try:
        if not given.page_only:
            measure(given.sections, path, quick=given.quick, console=console)
        require(path.is_file(), f"{path.name} does not exist yet: measure first")
        results = load(path)
        write(results, docs)
        print(must_show(results))
    except InputError as error:
        console.print(f"benchmarks: {error}", markup=False, highlight=False, soft_wrap=True)
        return 2
    except DisturbedError as error:
        console.print(f"benchmarks: {error}", markup=False, highlight=False, soft_wrap=True)
        return 1
    return 0


def measure(names: Sequence[str], path: Path, *, quick: bool, console: Console) -> None:
    """Measure sections one after the other, and merge each into the JSON when it is done.

    Args:
        names: sections to measure; none for all.
        path: the JSON.
        quick: whether sizes are tiny.
        console: where to show progress.
    """
    for name in names:
        require_choice("section", name, SECTIONS)
    chosen = [SECTIONS[name] for name in SECTIONS if name in names or not names]
    results = load(path) if path.is_file() else Results(quick=quick)
    torch.set_num_threads(1)
    with Bench({section.name: section.minutes for section in chosen}, quick=quick, console=console) as bench:
        for section in chosen:
            bench.start(section.name)
            started = time.monotonic()
            found = section.measure(bench)
            minutes = round((time.monotonic() - started) / 60, 1)
            results.sections[section.name] = Measured(machine=this_machine(), minutes=minutes, result=found)
            results.save(path)


if __name__ == "__main__":
    sys.exit(main())
