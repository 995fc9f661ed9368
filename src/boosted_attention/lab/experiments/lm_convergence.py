"""Appendix B: steps, FLOPs and seconds to reach each other's final validation loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import compare, main_arms, read, tag, text_runs, text_table, zero
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, render, trained

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Training needed to reach each other's final validation loss (Appendix B)"
OTHERS = {"param-fair": -20.0, "standard": -33.0, "twicing": None}


def runs(preset: Preset) -> list[Run]:
    return text_runs(preset, main_arms(preset))


def steps_to(result: dict[str, Any], loss: float) -> float | None:
    """Where the validation curve first comes down to ``loss``, between evaluations on a line; None if it never does."""
    steps, losses = np.asarray(result["curve"], dtype=float).T
    for i in range(1, len(steps)):
        if losses[i] <= loss:
            fraction = (losses[i - 1] - loss) / (losses[i - 1] - losses[i])
            return float(steps[i - 1] + fraction * (steps[i] - steps[i - 1]))
    return None


def training_needed(
    runner: dict[int, dict[str, Any]], goal: dict[int, dict[str, Any]]
) -> dict[str, dict[int, float]] | None:
    """What ``runner`` needs to where ``goal`` ends, against its whole run, in percent; None if a seed never does."""
    columns: dict[str, dict[int, float]] = {"steps": {}, "FLOPs": {}, "seconds": {}}
    for seed, theirs in goal.items():
        ours = runner[seed]
        steps = steps_to(ours, theirs["final_validation_loss"])
        if steps is None:
            return None
        costs = {
            "steps": 1.0,
            "FLOPs": ours["flops_per_token"] / theirs["flops_per_token"],
            "seconds": ours["measured"]["seconds"] / theirs["measured"]["seconds"],
        }
        for name, factor in costs.items():
            columns[name][seed] = 100 * (steps / theirs["steps"] * factor - 1)
    return columns


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, ["steps (%)", "FLOPs (%)", "seconds (%)"])
    table.precision = 1
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, main_arms(preset))
        pairs, never = [], []
        for other, paper in OTHERS.items():
            for runner, goal in (("boosted", other), (other, "boosted")):
                columns = training_needed(found[runner], found[goal])
                label = f"{runner}, to the end of {goal}{tag(preset, corpus)}"
                if columns is None:
                    never.append(label)
                    table.add_row(label, [None] * 3)
                    continue
                table.add_row(label, [trained(values) for values in columns.values()])
                if runner == "boosted":
                    steps = columns["steps"]
                    pairs.append((f"steps to the {other} model's end", steps, zero(steps), paper))
        compare(table, preset, corpus, pairs)
        if never:
            table.notes.append(f"Not reached with every seed, so without figures: {'; '.join(never)}.")
    table.notes[0] = "What is needed less than (-) or beyond (+) the whole run of the model to be reached, in percent."
    table.notes.append("Seconds are those of the runs themselves, on a machine that other runs shared.")
    return table
