"""Appendix B: steps, FLOPs and seconds the boosted model takes to where the others end."""

from __future__ import annotations

from typing import Any

import numpy as np

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import main_arms, read, text_runs, text_table, zero
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, render, trained

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Training needed to reach the others' final validation loss (Appendix B)"
PAPER = {"param-fair": -20.0, "standard": -33.0, "twicing": None}


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


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, ["steps (%)", "FLOPs (%)", "seconds (%)"])
    table.precision = 1
    for corpus in reversed(preset.text.corpora):
        found = read(preset, results, corpus, main_arms(preset))
        pairs = []
        for other, paper in PAPER.items():
            columns: dict[str, dict[int, float]] = {"steps": {}, "FLOPs": {}, "seconds": {}}
            never = 0
            for seed, theirs in found[other].items():
                ours = found["boosted"][seed]
                needed = steps_to(ours, theirs["final_validation_loss"])
                never += needed is None
                share = (ours["steps"] if needed is None else needed) / theirs["steps"]
                costs = {
                    "steps": 1.0,
                    "FLOPs": ours["flops_per_token"] / theirs["flops_per_token"],
                    "seconds": ours["measured"]["seconds"] / theirs["measured"]["seconds"],
                }
                for name, factor in costs.items():
                    columns[name][seed] = 100 * (share * factor - 1)
            table.add_row(f"boosted, to the end of {other}", [trained(values) for values in columns.values()])
            pairs.append((f"steps to the {other} model's end", columns["steps"], zero(columns["steps"]), paper))
            if never:
                which = f"{never} of {len(found[other])} seeds"
                table.notes.append(f"With {which} the end of {other} was never reached: counted as the whole run.")
        table.compare(pairs)
    table.notes[0] = "What the boosted model needs, less than (-) or beyond (+) the whole run of the other, in percent."
    table.notes.append("Seconds are those of the runs themselves, on a machine that other runs shared.")
    return table
