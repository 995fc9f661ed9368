"""Train the pairs again and put what ships of them into this folder: weights, configuration, tokenizer, result.

python -m pairs          both pairs
python -m pairs 2        the pair of seed 2

Trainings go on from their last checkpoint in out/pairs. The models are those of the recipe ``arena`` on the source of
Python's standard library, so that another version of Python trains on another text; pairs.json says which one it was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from boosted_attention.storage.sealing import FILES as LISTED
from boosted_attention.storage.sealing import SEAL, entry_of, listing, read_sealed, write_sealed
from boosted_attention.storage.writing import write_json

SHIPPED = Path(__file__).parent
LIST = SHIPPED / "pairs.json"
TRAINED = SHIPPED.parent / "out" / "pairs"
SEEDS = (1, 2)
ARMS = ("standard", "boosted")
FILES, RESULT = ("config.json", "tokenizer.json"), "result.json"


def main() -> int:
    """Train the pairs that are asked for and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m pairs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seeds", nargs="*", type=int, help="seeds of the pairs, 1 and 2 by default")
    for seed in parser.parse_args().seeds or SEEDS:
        for arm in ARMS:
            train(arm, seed)
            ship(arm, seed)
    return 0


def options(arm: str, seed: int) -> list[str]:
    """Return the options of ``boosted-attention train``."""
    return ["--recipe", "arena", "--attention", arm, "--seed", str(seed)]


def place(arm: str, seed: int) -> Path:
    """Return the folder of a model, relative to that of all."""
    return Path(f"stdlib-{seed}") / arm


def train(arm: str, seed: int) -> None:
    """Train a model with one thread, whose sums have one order."""
    command = [sys.executable, "-m", "boosted_attention", "train", *options(arm, seed), "--resume"]
    subprocess.run(
        [*command, "--out", str(TRAINED / place(arm, seed))], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True
    )


def ship(arm: str, seed: int) -> None:
    """Copy what is needed to load a model, and enter it into pairs.json."""
    run, to = TRAINED / place(arm, seed), SHIPPED / place(arm, seed)
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for name in FILES:
        shutil.copyfile(run / name, to / name)
    result = {key: value for key, value in read_sealed(run / RESULT).items() if key not in (LISTED, SEAL)}
    write_sealed(to / RESULT, result, listing(to, FILES))  # without the history, which does not ship
    best = max((run / "checkpoints").glob("best-*"))
    shutil.copytree(best, to / "checkpoints" / best.name)
    known: dict[str, Any] = json.loads(LIST.read_text(encoding="utf-8")) if LIST.exists() else {}
    known[str(place(arm, seed))] = {
        "command": " ".join(["boosted-attention train", *options(arm, seed)]),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sha256": entry_of(to / "checkpoints" / best.name / "model.safetensors").sha256,
    }
    write_json(LIST, known)


if __name__ == "__main__":
    sys.exit(main())
