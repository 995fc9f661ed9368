"""The language model: peak memory of a training step with the chunked loss, and times beside the plain one.

make bench
"""

import resource
import subprocess
import sys

import torch
from rich.console import Console
from torch.nn import functional

from benchmarks.interleaved import compare
from boosted_attention.model.language_model import LanguageModel
from boosted_attention.train.recipes import find_recipe

BATCH = 32


def plain_loss(model: LanguageModel, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def step(kind: str, recipe: str, batch: int) -> None:
    config = find_recipe(recipe).model
    torch.manual_seed(0)
    model = config.build()
    ids = torch.randint(config.vocab_size, (batch, config.max_len))
    loss = plain_loss(model, ids, ids) if kind == "plain" else model.loss(ids, ids)
    loss.backward()


def peak(kind: str, recipe: str) -> float:
    """MB that a step adds to a process, in one of its own."""
    command = [sys.executable, "-m", "benchmarks.language", kind, recipe]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measured_peak(kind: str, recipe: str) -> float:
    step("chunked", "mini", 1)  # libraries loaded
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step(kind, recipe, BATCH)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    for recipe in ("paper-small-standard", "paper-small-boosted"):
        peaks = {kind: peak(kind, recipe) for kind in ("plain", "chunked")}
        Console().print(
            f"peak memory of a {recipe} training step at batch {BATCH}: plain {peaks['plain']:.0f} MB, "
            f"chunked {peaks['chunked']:.0f} MB, ratio {peaks['chunked'] / peaks['plain']:.2f}"
        )
    compare(
        "training step of paper-small at batch 4",
        {kind: lambda kind=kind: step(kind, "paper-small", 4) for kind in ("plain", "chunked")},
        repeats=5,
    )
    steps = {}
    for name in ("standard", "boosted", "twicing", "parallel"):
        model = find_recipe("mini").model
        config = type(model)(**{**model.to_dict(), "attention": name})
        built, ids = config.build(), torch.randint(config.vocab_size, (BATCH, config.max_len))
        steps[name] = lambda built=built, ids=ids: built.loss(ids, ids).backward()
    compare("training step of mini at batch 32", steps)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(measured_peak(*sys.argv[1:]))
    else:
        main()
