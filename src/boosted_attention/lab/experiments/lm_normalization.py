"""Table 4: the main arms under Pre-LN and Post-LN."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import (
    add_arms,
    compare,
    main_arms,
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

TITLE = "Placement of the norms (Table 4)"
PAPER = {"standard, post": 77.2, "param-fair, post": 71.8, "boosted, post": 84.6}
EFFECTS = {
    ("boosted", "pre"): -6.0,
    ("boosted", "post"): 9.6,
    ("param-fair", "pre"): -4.4,
    ("param-fair", "post"): -7.0,
}


def arms(preset: Preset) -> dict[str, Arm]:
    pre = {name: arm for name, arm in main_arms(preset).items() if name != "twicing"}
    post = {f"{name}, post": {**arm, "norm": "post"} for name, arm in pre.items()}
    return {**pre, **post}


def runs(preset: Preset) -> list[Run]:
    return text_runs(preset, arms(preset))


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, arms(preset))
        add_arms(table, preset, corpus, found, PAPER if corpus == "wikitext-103" else None)
        values = {name: perplexity(by_seed) for name, by_seed in found.items()}
        pairs = []
        for (name, place), paper in EFFECTS.items():
            ending = ", post" if place == "post" else ""
            label = f"{name} - standard, {place}"
            pairs.append(relative(values, name + ending, "standard" + ending, paper, label))
        compare(table, preset, corpus, pairs)
    return table
