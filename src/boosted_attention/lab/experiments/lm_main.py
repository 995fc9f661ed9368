"""Table 3: standard, twicing, the wider standard model and boosted, on text."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import (
    add_arms,
    compare,
    describe_matched,
    main_arms,
    perplexity,
    read,
    relative,
    stands_for,
    text_runs,
    text_table,
)
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, exactly, render
from boosted_attention.statistics import estimate
from boosted_attention.train.recipes import find_recipe

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Language models (Table 3)"
MORE_PARAMETERS = "parameters, boosted - standard"
PAPER = {
    "wikitext-103": {"standard": 72.2, "twicing": 69.6, "param-fair": 69.0, "boosted": 67.9},
    "openwebtext": {"standard": 114.9, "twicing": 110.7, "param-fair": 110.2, "boosted": 108.5},
}
PAIRS = [
    ("boosted", "standard"),
    ("boosted", "twicing"),
    ("boosted", "param-fair"),
    ("twicing", "standard"),
    ("param-fair", "standard"),
]


def runs(preset: Preset) -> list[Run]:
    return text_runs(preset, main_arms(preset))


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, main_arms(preset))
        add_arms(table, preset, corpus, found, PAPER.get(corpus))
        values = {name: perplexity(by_seed) for name, by_seed in found.items()}
        theirs = stands_for(preset).get(corpus)
        paper = PAPER.get(theirs or "", {})
        pairs = [relative(values, a, b, 100 * (paper[a] / paper[b] - 1) if paper else None) for a, b in PAIRS]
        compare(table, preset, corpus, pairs)
        if theirs is not None:  # under the name the claims use
            for name, by_seed in values.items():
                table.quantities[f"{name} | {theirs}"] = estimate(list(by_seed.values()))
            for label, a, _, _ in pairs:
                table.quantities[f"{label} | {theirs}"] = estimate(list(a.values()))
    boosted, standard = (find_recipe(f"paper-small-{name}").model.num_params() for name in ("boosted", "standard"))
    table.quantities[MORE_PARAMETERS] = exactly(100 * (boosted / standard - 1))  # known without training
    table.at_full_size.add(MORE_PARAMETERS)
    table.notes.append(describe_matched(preset, {"param-fair": main_arms(preset)["param-fair"]}))
    return table
