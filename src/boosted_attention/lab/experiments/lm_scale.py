"""The paper's open question: does the gain over a matched standard model last as models grow?"""

from __future__ import annotations

import math

import numpy as np

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import (
    BOOSTED,
    compare,
    matched_arm,
    percent,
    perplexity,
    require_alike,
    tag,
    text_table,
    zero,
)
from boosted_attention.lab.language import arm_model, planned_steps, recipe, text_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, render, trained

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "The gain over the parameter-matched standard model, by width"


def widths(preset: Preset) -> list[int]:
    d = recipe(preset).model.d_model
    return [d // 2, d, 3 * d // 2]


def steps(preset: Preset, width: int) -> int | None:
    """As many tokens per parameter at every width; the preset's own steps at its own width."""
    base = recipe(preset)
    if width == base.model.d_model:
        return None
    here, there = (arm_model(preset, {**BOOSTED, "d_model": d}).num_params() for d in (base.model.d_model, width))
    return max(2, round(planned_steps(base.model, base.training, base.data) * there / here))


def pair(preset: Preset, corpus: str, width: int, seed: int) -> tuple[Run, Run]:
    boosted = {**BOOSTED, "d_model": width} if width != recipe(preset).model.d_model else BOOSTED
    standard = matched_arm(preset, boosted, "parameters")
    n = steps(preset, width)
    return (
        text_run(preset, corpus, boosted, seed, f"boosted, d={width}", steps=n),
        text_run(preset, corpus, standard, seed, f"matched, d={width}", steps=n),
    )


def runs(preset: Preset) -> list[Run]:
    return [
        run
        for corpus in preset.text.corpora
        for seed in preset.text.seeds
        for width in widths(preset)
        for run in pair(preset, corpus, width, seed)
    ]


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, ["boosted", "matched standard", "difference (%)"])
    own, seeds = recipe(preset).model.d_model, preset.text.seeds
    for corpus in preset.text.corpora:
        gains: dict[int, dict[int, float]] = {}
        strength: dict[int, dict[int, float]] = {}
        everything = {}
        for width in widths(preset):
            both = {seed: [results(run) for run in pair(preset, corpus, width, seed)] for seed in seeds}
            found = {name: {seed: r[i] for seed, r in both.items()} for i, name in enumerate(("boosted", "matched"))}
            everything |= {f"{name}, d={width}": by_seed for name, by_seed in found.items()}
            boosted, standard = (perplexity(found[name]) for name in ("boosted", "matched"))
            gains[width] = percent(boosted, standard)
            strength[width] = {seed: math.log(value) for seed, value in standard.items()}
            cells = [trained(boosted), trained(standard), trained(gains[width])]
            table.add_row(f"d={width}{tag(preset, corpus)}", cells)
        require_alike(everything, corpus)
        by_width = {s: slope([math.log(d) for d in gains], [gains[d][s] for d in gains]) for s in seeds}
        by_loss = {s: slope([strength[d][s] for d in gains], [gains[d][s] for d in gains]) for s in seeds}
        # The gain is how far perplexity falls, so that a slope below zero means it fades.
        fading = {s: -value for s, value in by_width.items()}
        pairs = [
            ("boosted - matched at the preset's width", gains[own], zero(gains[own]), None),
            ("slope of the gain against log width", fading, zero(fading), None),
            ("slope of the difference against the standard model's loss", by_loss, zero(by_loss), None),
        ]
        compare(table, preset, corpus, pairs)
    table.notes.append("Equal tokens per parameter. Slopes are in percent per e-fold of width, and per nat of loss.")
    return table


def slope(x: list[float], y: list[float]) -> float:
    return float(np.polyfit(x, y, 1)[0])
