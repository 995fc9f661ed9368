"""Boosting only some layers: those whose corrections are missed most, against as many at random."""

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
    require_alike,
    short,
    text_runs,
    text_table,
)
from boosted_attention.lab.language import analysis_run, derived_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, render

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Boosting only the layers that matter"
WHOLE = {"standard": STANDARD, "boosted": BOOSTED}
CHOICES = {"chosen layers": "importance", "random layers": "random"}


def selected(preset: Preset, corpus: str, seed: int, name: str) -> Run:
    whole = analysis_run(preset, corpus, BOOSTED, STANDARD, seed)
    return derived_run(preset, corpus, seed, name, "train_selected", whole, {"choose": CHOICES[name]})


def runs(preset: Preset) -> list[Run]:
    parts = [
        selected(preset, corpus, seed, name)
        for corpus in preset.text.corpora
        for seed in preset.text.seeds
        for name in CHOICES
    ]
    analyses = [
        analysis_run(preset, corpus, BOOSTED, STANDARD, seed)
        for corpus in preset.text.corpora
        for seed in preset.text.seeds
    ]
    return [*text_runs(preset, WHOLE), *analyses, *parts]


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, WHOLE)
        for name in CHOICES:
            found[name] = {seed: results(selected(preset, corpus, seed, name)) for seed in preset.text.seeds}
        require_alike(found, corpus)
        add_arms(table, preset, corpus, found)
        values = {name: perplexity(by_seed) for name, by_seed in found.items()}
        others = ("random layers", "boosted", "standard")
        compare(table, preset, corpus, [relative(values, "chosen layers", other) for other in others])
        for name, how in (
            ("chosen layers", "by what the boosted model loses without them"),
            ("random layers", "at random"),
        ):
            picked = [f"seed {seed}: {result['layers']}" for seed, result in found[name].items()]
            table.notes.append(f"{short(preset, corpus)}, layers chosen {how}: {', '.join(picked)}.")
    return table
