"""Appendix D: where a correction's keys and values come from."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import BOOSTED, add_arms, compare, perplexity, read, text_runs, text_table
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, render

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Keys and values of the correction (Appendix D)"
ARMS = {"residual": BOOSTED, "input": {"attention": "boosted-input"}, "shared": {"attention": "boosted-shared"}}
PAPER = {"residual": 67.9, "input": 69.3}


def runs(preset: Preset) -> list[Run]:
    return text_runs(preset, ARMS)


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, unit="points")
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, ARMS)
        add_arms(table, preset, corpus, found, PAPER if corpus == "wikitext-103" else None)
        values = {name: perplexity(by_seed) for name, by_seed in found.items()}
        pairs = [("residual - input", values["residual"], values["input"], -1.4)]
        compare(table, preset, corpus, [*pairs, ("residual - shared", values["residual"], values["shared"], None)])
    return table
