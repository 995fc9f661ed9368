"""Boosting a pretrained model, against other ways to fine-tune it: what is learned, forgotten, and paid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Cell, Table, exact, render
from boosted_attention.lab.tuning import SIZES, pretrained, seeds, timing_run, tuning_run, untouched_run
from boosted_attention.statistics import estimate

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Fine-tuning a pretrained model"
COLUMNS = ["perplexity", "other text", "trained (M)", "step time", "seconds per step", "peak memory (GB)"]


def arms(preset: Preset) -> dict[str, Mapping[str, Any]]:
    """Ways to train it; the last layers are a third of them.

    Whole matrices get 3e-5, a usual rate; factors of low rank 3e-4, whose product then moves by about as much a step.
    """
    last = "last:10" if preset.text.pretrained else "last:1"
    return {
        "boosted": {"boost": {}, "lr": 3e-5},
        "boosted, random start": {"boost": {"init": "random"}, "lr": 3e-5},
        "boosted, last layers": {"boost": {"layers": last}, "lr": 3e-5},
        "LoRA, as many parameters": {"train": "lora", "lr": 3e-4},
        "everything": {"train": "all", "lr": 3e-5},
    }


def runs(preset: Preset) -> list[Run]:
    tuned = [tuning_run(preset, arm, seed, name) for seed in seeds(preset) for name, arm in arms(preset).items()]
    return [untouched_run(preset), *tuned, timing_run(preset, arms(preset))]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, COLUMNS, precision=2)
    table.scale = f"{pretrained(preset)['name']}, {', '.join(preset.text.corpora)}"
    before = results(untouched_run(preset))
    table.add_row("as it was", [perplexity([before], "new"), perplexity([before], "watched"), *[None] * 4])
    found = {
        name: {seed: results(tuning_run(preset, arm, seed, name)) for seed in seeds(preset)}
        for name, arm in arms(preset).items()
    }
    times = results(timing_run(preset, arms(preset)))["measured"]
    for name, by_seed in found.items():
        tuned = list(by_seed.values())
        table.add_row(
            name,
            [
                perplexity(tuned, "new"),
                perplexity(tuned, "watched"),
                exact(tuned[0]["trained_parameters"] / 1e6),
                exact(times["ratios"][name]),
                exact(times["seconds"][name]),
                Cell(estimate([r["measured"]["peak_memory"] / 1e9 for r in tuned])),
            ],
        )
    losses = {name: {s: r["new"] for s, r in by_seed.items()} for name, by_seed in found.items()}
    table.compare(
        [
            (f"loss, boosted - {name}", losses["boosted"], values, None)
            for name, values in losses.items()
            if name != "boosted"
        ]
    )
    size, lora = SIZES[preset.name], next(iter(found["LoRA, as many parameters"].values()))
    rates = ", ".join(f"{name} {arm['lr']:g}" for name, arm in arms(preset).items())
    tokens = size.batch_size * size.max_len
    if len(seeds(preset)) == 1:
        table.notes.append("One seed: how much of a difference is chance is not known.")
    table.notes.append(
        f"{pretrained(preset)['name']} on {preset.text.corpora[0]}: {size.steps} steps of {tokens} tokens, the "
        f"same batches in the same order; learning rates {rates}; LoRA of rank {lora['rank']}. "
        "Step time: of interleaved steps in one process, one thread, as a multiple of the boosted model's, and in "
        "seconds of this machine; peak memory: of the training's process."
    )
    return table


def perplexity(results: Sequence[dict[str, Any]], what: str) -> Cell | None:
    values = [result[what] for result in results]
    return None if None in values else Cell(estimate([math.exp(value) for value in values]))
