"""docs/reliability.md, made from the counts of the last full run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boosted_attention.storage.writing import write_atomically, write_json
from tests.faults.hunt import Count
from tests.faults.hunts import HUNTS

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "tests" / "faults" / "results.json", ROOT / "docs" / "reliability.md"
HEAD = """# What is promised about files, signals and bad input

Made by `make faults` from tests/faults/results.json; no number here is typed. A hunt makes many attempts to break
something. Each attempt is a function of its number, so one that broke something can be repeated. `make test` makes the
first few attempts of every hunt.

## How things are kept

- **One seal.** One JSON document in a folder lists the folder's other files with size and sha256, and holds a sha256
  of its own content: `config.json` and `result.json` of a run, `state.json` of a checkpoint,
  `manifest.json` of token files, `correction.json` of a correction, `result.json` of a trial, `claims.json` of a
  reproduction. It is written last. Every command reads through `boosted_attention.storage`: sizes are bounded before
  anything is parsed, types are checked against dataclasses, files that are not listed are not read, weights are
  searched for values that are not finite.
- **One writer.** Files and folders are made beside their final place, flushed, and renamed; whatever fails leaves
  nothing behind. A command never removes folders that it did not make.
- **One lock** per folder that is written to, released by the operating system if its owner dies. A second lock keeps
  checkpoints from being moved while a run is read, so that a run can be evaluated while it trains.
- **Budgets.** Sizes and counts have a largest value, training is refused where its weights alone exceed the memory of
  the machine, compressed text may grow a thousandfold, and control characters do not reach the terminal.

## What is not promised

- A seal shows damage, not who wrote the content: somebody who changes a file and seals the folder again is believed,
  within the schema.
- Token files of more than a gibibyte are checked only by their size when they are opened, not by their content.
- Folders of transformers models are that library's format and have no seal; our commands read them without pickles and
  without remote code, take files only from the folder itself, and refuse weights that are not finite.
- An interrupt in the first tenth of a second, while Python itself starts, may show Python's own traceback.
- On systems without `flock`, a reader may meet a checkpoint while it is being removed, and is then told so.

## The last full run

"""


def render(counts: Mapping[str, Count]) -> str:
    """Return the page.

    Args:
        counts: what every hunt has counted, by its name.
    """
    lines = ["| hunt | attempts | broke something | what is promised |", "|---|---|---|---|"]
    for hunt in HUNTS:
        count = counts[hunt.name]
        lines.append(f"| {hunt.name} | {count.done:,} | {len(count.broken)} | {hunt.promise} |")
    minutes = sum(count.seconds for count in counts.values()) / 60
    lines += ["", f"It took {minutes:.0f} minutes, other work of the machine included."]
    for hunt in HUNTS:
        lines += [f"- {hunt.name}, attempt {n}: {last_line(what)}" for n, what in counts[hunt.name].broken.items()]
    return HEAD + "\n".join(lines) + "\n"


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def write_page(counts: Mapping[str, Count]) -> None:
    """Keep the counts, and write the page from them."""
    write_json(RESULTS, {name: vars(count) for name, count in counts.items()})
    write_atomically(PAGE, render(kept()))


def kept() -> dict[str, Count]:
    """Return the counts of the last full run."""
    held: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())
    return {name: Count(**count) for name, count in held.items()}
