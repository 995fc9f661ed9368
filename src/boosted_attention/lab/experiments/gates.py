"""Table 6: kinds of gate, two rounds each."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import MAIN, boosted, by_seed, training_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, render, trained

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Kinds of gate with M=2: accuracy (%) (Table 6)"
ARMS = {
    "baseline M=1": boosted(1),
    "none": boosted(2, gate="none"),
    "scalar": boosted(2, gate="scalar"),
    "vector": boosted(2),
    "mlp": boosted(2, gate="mlp"),
}
GAINS = {"none": 7.2, "scalar": 8.3, "vector": 7.4}  # over the baseline, in the paper
PAPER = {"baseline M=1": 48.2, "none": 55.4, "scalar": 56.5, "vector": 55.6}


def runs(preset: Preset) -> list[Run]:
    return [training_run(preset, MAIN, model) for model in ARMS.values()]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, list(ARMS), precision=2)
    found = {label: results(training_run(preset, MAIN, model)) for label, model in ARMS.items()}
    accuracy = {label: by_seed(result, "accuracy") for label, result in found.items()}
    table.add_row("accuracy", [trained(accuracy[label], PAPER.get(label)) for label in ARMS])
    table.add_row("squared error", [trained(by_seed(found[label], "mse")) for label in ARMS])
    base = "baseline M=1"
    pairs = [(f"{arm} - baseline", accuracy[arm], accuracy[base], GAINS.get(arm)) for arm in ARMS if arm != base]
    pairs += [
        ("scalar - vector", accuracy["scalar"], accuracy["vector"], 0.9),
        ("none - vector", accuracy["none"], accuracy["vector"], -0.2),
    ]
    table.compare(pairs)
    return table
