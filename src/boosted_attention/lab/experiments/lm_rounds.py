"""Rounds and gates in the language model."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import (
    BOOSTED,
    STANDARD,
    add_arms,
    percent,
    perplexity,
    read,
    text_runs,
    text_table,
    zero,
)  # fmt: skip
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
    for corpus in reversed(preset.text.corpora):
        found = read(preset, results, corpus, ARMS)
        add_arms(table, preset, corpus, found)
        values = {name: perplexity(by_seed) for name, by_seed in found.items()}
        first, second = percent(values["M=2"], values["M=1"]), percent(values["M=3"], values["M=2"])
        pairs = [
            ("M=2 - M=1", first, zero(first), None),
            ("M=3 - M=2", second, zero(second), None),
            ("(M=2 - M=1) - (M=3 - M=2)", first, second, None),
        ]
        for name in ("M=2, no gate", "M=2, scalar gate"):
            difference = percent(values["M=2"], values[name])
            pairs.append((f"vector gate - {name.removeprefix('M=2, ')}", difference, zero(difference), None))
        table.compare(pairs)
    return table
