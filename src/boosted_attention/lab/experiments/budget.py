"""A control the paper lacks: is the gain of more rounds a matter of training length and learning rate?"""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import MAIN, baseline_run, boosted, by_seed, training_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, exact, render, trained

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Rounds against training budget: accuracy (%)"
ROUNDS = (1, 2, 3)


def arms(preset: Preset) -> dict[str, list[Run]]:
    """A row of the table: one budget, M = 1, 2 and, for the short ones, 3."""
    middle = {"steps": max(preset.steps + 1, preset.long_steps // 5), "seeds": preset.long_seeds}
    long = {"steps": preset.long_steps, "seeds": preset.long_seeds}
    budgets = {
        "the paper's budget": (ROUNDS, {}),
        "the paper's steps, learning rate 2e-2": (ROUNDS, {"lr": 2e-2}),
        "4 times the steps": (ROUNDS, middle),
        "4 times the steps, learning rate 2e-2": (ROUNDS[:2], {"lr": 2e-2, **middle}),
        "20 times the steps": (ROUNDS[:2], long),
    }
    return {
        name: [training_run(preset, MAIN, boosted(m), **how) for m in rounds] for name, (rounds, how) in budgets.items()
    }


def runs(preset: Preset) -> list[Run]:
    return [baseline_run(preset, MAIN), *(run for row in arms(preset).values() for run in row)]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [f"M={m}" for m in ROUNDS], precision=2)
    pairs = []
    for name, row in arms(preset).items():
        accuracy = [by_seed(results(run), "accuracy") for run in row]
        missing = [None] * (len(ROUNDS) - len(accuracy))
        table.add_row(name, [*(trained(values) for values in accuracy), *missing])
        pairs += [(f"M={m} - M=1, {name}", values, accuracy[0], None) for m, values in enumerate(accuracy[1:], start=2)]
    bayes = results(baseline_run(preset, MAIN))["bayes"]["accuracy"]
    table.add_row("Bayes", [exact(bayes)] * 3)
    table.compare(pairs)
    return table
