"""Rounds and gates in the language model."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import (
    BOOSTED,
    STANDARD,
    add_arms,
    compare,
    perplexity,
    read,
    relative,
    text_runs,
    text_table,
)
from boosted_attention.lab.language import Arm
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, render

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Rounds and gates in the language model"
ARMS: dict[str, Arm] = {
    "M=1": STANDARD,
    "M=2": BOOSTED,
    "M=3": {**BOOSTED, "attention_options": {"n_rounds": 3}},
    "M=2, no gate": {**BOOSTED, "attention_options": {"gate": "none"}},
    "M=2, scalar gate": {**BOOSTED, "attention_options": {"gate": "scalar"}},
}


def runs(preset: Preset) -> list[Run]:
    return text_runs(preset, ARMS)


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, ARMS)
        add_arms(table, preset, corpus, found)
        values = {name: perplexity(by_seed) for name, by_seed in found.items()}
        first, second = relative(values, "M=2", "M=1"), relative(values, "M=3", "M=2")
        pairs = [first, second, ("(M=2 - M=1) - (M=3 - M=2)", first[1], second[1], None)]
        for gate in ("no gate", "scalar gate"):
            pairs.append(relative(values, "M=2", f"M=2, {gate}", label=f"vector gate - {gate}"))
        compare(table, preset, corpus, pairs)
    return table
