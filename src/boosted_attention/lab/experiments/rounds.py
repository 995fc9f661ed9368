"""Table 5: how many rounds."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import MAIN, baseline_run, boosted, by_seed, training_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, exact, render, trained

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Rounds of boosting: accuracy (%) and squared error (Table 5)"
ROUNDS = (1, 2, 3, 4, 5)
PAPER = (46.0, 55.5, 57.6, 58.1, 57.0)


def runs(preset: Preset) -> list[Run]:
    return [baseline_run(preset, MAIN), *(training_run(preset, MAIN, boosted(m)) for m in ROUNDS)]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, ["Bayes", *(f"M={m}" for m in ROUNDS)], precision=2)
    bayes = results(baseline_run(preset, MAIN))["bayes"]
    found = {m: results(training_run(preset, MAIN, boosted(m))) for m in ROUNDS}
    accuracy = {m: by_seed(found[m], "accuracy") for m in ROUNDS}
    error = {m: by_seed(found[m], "mse") for m in ROUNDS}
    table.add_row(
        "accuracy",
        [exact(bayes["accuracy"], 58.1), *(trained(accuracy[m], p) for m, p in zip(ROUNDS, PAPER, strict=True))],
    )
    table.add_row("squared error", [exact(bayes["mse"]), *(trained(error[m]) for m in ROUNDS)])
    first = PAPER[0]
    pairs = [
        (f"M={m} - M=1", accuracy[m], accuracy[1], round(p - first, 1)) for m, p in zip(ROUNDS, PAPER, strict=True)
    ]
    ceiling = dict.fromkeys(accuracy[4], float(bayes["accuracy"]))
    later = {seed: accuracy[5][seed] - accuracy[2][seed] for seed in accuracy[2]}
    jump = {seed: accuracy[2][seed] - accuracy[1][seed] for seed in accuracy[2]}
    table.compare(
        [*pairs[1:], ("M=4 - Bayes", accuracy[4], ceiling, 0.0), ("(M=2 - M=1) - (M=5 - M=2)", jump, later, None)]
    )
    last = [rounds["rounds"] for rounds in found[5].values()]
    norms = [sum(rounds[m]["to_query"] for rounds in last) / len(last) for m in range(5)]
    table.notes.append(
        "Mean ||x - F_m|| after each round of the M=5 models, which boosting on the residual would reduce: "
        + ", ".join(f"{value:.2f}" for value in norms)
        + "."
    )
    return table
