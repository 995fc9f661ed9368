"""Table 4: the main arms under Pre-LN and Post-LN."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import (
    add_arms,
    main_arms,
    percent,
    perplexity,
    read,
    text_runs,
    text_table,
    zero,
)
from boosted_attention.lab.language import Arm
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.statistics import estimate
from boosted_attention.lab.table import Table, render

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Placement of the norms (Table 4)"
PAPER = {"standard, post": 77.2, "param-fair, post": 71.8, "boosted, post": 84.6}


def arms(preset: Preset) -> dict[str, Arm]:
    pre = {name: arm for name, arm in main_arms(preset).items() if name != "twicing"}
    post = {f"{name}, post": {**arm, "norm": "post"} for name, arm in pre.items()}
    return {**pre, **post}


def runs(preset: Preset) -> list[Run]:
    return text_runs(preset, arms(preset))


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in reversed(preset.text.corpora):  # the first corpus has the last word on quantities
        found = read(preset, results, corpus, arms(preset))
        add_arms(table, preset, corpus, found, PAPER)
        values = {name: perplexity(by_seed) for name, by_seed in found.items()}
        pairs = []
        for place, ending in (("pre", ""), ("post", ", post")):
            for name in ("standard", "param-fair", "boosted"):
                table.quantities[f"{name} | {place}"] = estimate(list(values[name + ending].values()))
            for name, paper in (("boosted", {"pre": -6.0, "post": 9.6}), ("param-fair", {"pre": -4.4, "post": -7.0})):
                difference = percent(values[name + ending], values["standard" + ending])
                pairs.append((f"{name} - standard | {place}", difference, zero(difference), paper[place]))
        table.compare(pairs)
    return table
