"""Two processes on two cores against one process with two threads: tokens per second of training, as ratios.

make bench
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track

STEPS, REPEATS = 40, 5
TRAIN = ["-m", "boosted_attention", "train", "--steps", str(STEPS), "--eval-every", "0", "--held-out-tokens", "2000"]
TOGETHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
WAYS = {
    "one process, two threads": ([], {"OMP_NUM_THREADS": "2"}, []),
    "two processes, ddp": (TOGETHER, {"OMP_NUM_THREADS": "1"}, ["--parallel", "ddp"]),
    "two processes, fsdp": (TOGETHER, {"OMP_NUM_THREADS": "1"}, ["--parallel", "fsdp"]),
}


def speed(way: str) -> float:
    """Tokens per second of a short training of the mini recipe, start-up and evaluation left out."""
    start, environment, options = WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, *start, *TRAIN, *options, "--out", str(run)]
        subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True)
        result = json.loads((run / "result.json").read_text())
    return result["tokens"] / result["seconds"]


def main() -> None:
    first = next(iter(WAYS))
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in track(range(REPEATS), description="mini", console=Console(stderr=True), transient=True):
        speeds = {way: speed(way) for way in WAYS}
        for way in WAYS:
            ratios[way].append(speeds[way] / speeds[first])
    for way, values in ratios.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{way}: {middle:.2f} times the tokens per second of {first} (quartiles {low:.2f} - {high:.2f})")


if __name__ == "__main__":
    main()
