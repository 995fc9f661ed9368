"""Table 3: standard, twicing, the wider standard model and boosted, on text."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import (
    add_arms,
    differences,
    main_arms,
    perplexity,
    read,
    text_runs,
    text_table,
)
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.statistics import estimate
from boosted_attention.lab.table import Table, exactly, render
from boosted_attention.train.presets import find_preset

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Language models (Table 3)"
MORE_PARAMETERS = "parameters, boosted - standard"
PAPER = {
    "wikitext-103": {"standard": 72.2, "twicing": 69.6, "param-fair": 69.0, "boosted": 67.9},
    "openwebtext": {"standard": 114.9, "twicing": 110.7, "param-fair": 110.2, "boosted": 108.5},
}


def runs(preset: Preset) -> list[Run]:
    return text_runs(preset, main_arms(preset))


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, main_arms(preset))
        add_arms(table, preset, corpus, found, PAPER.get(corpus))
        values = {name: perplexity(by_seed) for name, by_seed in found.items()}
        for name, by_seed in values.items():
            table.quantities[f"{name} | {corpus}"] = estimate(list(by_seed.values()))
        pairs = [
            ("boosted", "standard", -6.0),
            ("boosted", "twicing", -2.5),
            ("boosted", "param-fair", -1.7),
            ("twicing", "standard", -3.5),
            ("param-fair", "standard", -4.4),
        ]
        differences(table, preset, corpus, values, pairs)
    boosted, standard = (find_preset(f"paper-small-{name}").model.num_params() for name in ("boosted", "standard"))
    table.quantities[MORE_PARAMETERS] = exactly(100 * (boosted / standard - 1))  # known without training
    table.at_full_size.add(MORE_PARAMETERS)
    return table
