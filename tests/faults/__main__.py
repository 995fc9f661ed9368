"""Run the hunts, keep count, and write docs/reliability.md from the counts.

python -m tests.faults                 everything at full scale, in some two hours; goes on where it was
python -m tests.faults --scale 0.1     a tenth of it
python -m tests.faults corruptions     one hunt alone
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

import torch
from rich.progress import Progress

from tests.faults.hunt import Count, go_on
from tests.faults.hunts import HUNTS
from tests.faults.page import write_page
from tests.faults.workshop import Workshop

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "out" / "faults"


def main() -> int:
    """Run the hunts that are asked for and return the exit code: 1 if anything broke."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("hunts", nargs="*", help="hunts by name, all by default")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full number of attempts")
    parser.add_argument("--anew", action="store_true", help="forget earlier counts")
    given = parser.parse_args()
    torch.set_num_threads(1)
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    chosen = [hunt for hunt in HUNTS if not given.hunts or hunt.name in given.hunts]
    if given.anew:
        shutil.rmtree(PLACE, ignore_errors=True)
    (PLACE / "workshop").mkdir(parents=True, exist_ok=True)
    os.environ["BOOSTED_ATTENTION_CACHE"] = str(PLACE / "workshop" / "cache")
    workshop, counts = Workshop(PLACE / "workshop"), {}
    with Progress() as bar:
        for hunt in chosen:
            wanted = max(1, round(hunt.attempts * given.scale))
            task = bar.add_task(hunt.name, total=wanted)
            for until in range(0, wanted + 1, 5):
                count = go_on(hunt, min(until, wanted), workshop, PLACE / "scratch", PLACE / f"{hunt.name}.json")
                bar.update(task, completed=count.done)
            counts[hunt.name] = go_on(hunt, wanted, workshop, PLACE / "scratch", PLACE / f"{hunt.name}.json")
            bar.update(task, completed=wanted)
    for name, count in counts.items():
        print(f"{name}: {count.done} attempts, {len(count.broken)} broke something, {count.seconds / 60:.1f} minutes")
        for number, what in list(count.broken.items())[:3]:
            print(f"  {number}: {what.strip().splitlines()[-1]}")
    if len(chosen) == len(HUNTS):
        write_page({hunt.name: Count.read(PLACE / f"{hunt.name}.json") for hunt in HUNTS})
    return 1 if any(count.broken for count in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
