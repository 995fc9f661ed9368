"""The paper's open question: does the gain over a matched standard model last as models grow?"""

from __future__ import annotations

import math

import numpy as np

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._shared import (
    BOOSTED,
    PLAIN,
    Found,
    against_zero,
    compare,
    language_result,
    matched_arm,
    percent,
    perplexity,
    require_alike,
    tag,
    text_table,
)
from boosted_attention.lab.experiments.language._trials import arm_model, training_trial
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import SIZE
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Cell, Table, over_seeds
from boosted_attention.lab.judging.verdicts import SHOWN
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import planned_steps

TITLE = "The gain over the parameter-matched standard model, by width"
OWN_WIDTH = Quantity("boosted - matched at the preset's width")
BY_WIDTH = Quantity("slope of the gain against log width")
BY_LOSS = Quantity("slope of the difference against the standard model's loss")


def widths(preset: Preset) -> list[int]:
    d = preset.text.configuration().model.d_model
    return [d // 2, d, 3 * d // 2]


def steps(preset: Preset, width: int) -> int | None:
    """Steps for as many tokens per parameter as at the preset's width; None is the preset's own number."""
    base = preset.text.configuration()
    if width == base.model.d_model:
        return None
    here, there = (
        arm_model(preset, {**PLAIN[BOOSTED], "d_model": d}).num_params() for d in (base.model.d_model, width)
    )
    return max(2, round(planned_steps(base.model, base.training, base.data) * there / here))


def pair(preset: Preset, corpus: str, width: int, seed: int) -> tuple[Trial, Trial]:
    """The boosted model of a width, and the standard one with as many parameters."""
    own = preset.text.configuration().model.d_model
    boosted = PLAIN[BOOSTED] if width == own else {**PLAIN[BOOSTED], "d_model": width}
    standard = matched_arm(preset, boosted, "parameters")
    n = steps(preset, width)
    return (
        training_trial(preset, corpus, boosted, seed, f"boosted, d={width}", steps=n),
        training_trial(preset, corpus, standard, seed, f"matched, d={width}", steps=n),
    )


def trials(preset: Preset) -> list[Trial]:
    return [
        trial
        for corpus in preset.text.corpora
        for seed in preset.text.seeds
        for width in widths(preset)
        for trial in pair(preset, corpus, width, seed)
    ]


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, ["boosted", "matched standard", "difference (%)"])
    own, seeds = preset.text.configuration().model.d_model, preset.text.seeds
    for corpus in preset.text.corpora:
        gains: dict[int, BySeed] = {}
        strength: dict[int, BySeed] = {}
        everything: Found = {}
        for width in widths(preset):
            both = {
                seed: [language_result(results, trial) for trial in pair(preset, corpus, width, seed)] for seed in seeds
            }
            found = {name: {seed: r[i] for seed, r in both.items()} for i, name in enumerate(("boosted", "matched"))}
            everything |= {f"{name}, d={width}": by_seed for name, by_seed in found.items()}
            boosted, standard = (perplexity(found[name]) for name in ("boosted", "matched"))
            gains[width] = percent(boosted, standard)
            strength[width] = {seed: math.log(value) for seed, value in standard.items()}
            cells = [Cell(over_seeds(values)) for values in (boosted, standard, gains[width])]
            table.add_row(f"d={width}{tag(preset, corpus)}", cells)
        require_alike(everything, corpus)
        by_width = {s: slope([math.log(d) for d in gains], [gains[d][s] for d in gains]) for s in seeds}
        by_loss = {s: slope([strength[d][s] for d in gains], [gains[d][s] for d in gains]) for s in seeds}
        # The gain is how far perplexity falls, so that a slope below zero means it fades.
        fading = {s: -value for s, value in by_width.items()}
        pairs = [against_zero(OWN_WIDTH, gains[own]), against_zero(BY_WIDTH, fading), against_zero(BY_LOSS, by_loss)]
        compare(table, preset, corpus, pairs)
    table.notes.append("Equal tokens per parameter. Slopes are in percent per e-fold of width, and per nat of loss.")
    return table


def slope(x: list[float], y: list[float]) -> float:
    """Slope of the least-squares line."""
    return float(np.polyfit(x, y, 1)[0])


CLAIMS = [
    claim(
        "lm-scale",
        SIZE,
        BY_WIDTH,
        SHOWN,
        "Change of the relative gain with the width of the model, in percent per e-fold.",
        paper="open",
    )
]

EXPERIMENT = Experiment(
    name="lm-scale", title=TITLE, kind=Kind.LANGUAGE, order=170, trials=trials, collect=collect, claims=CLAIMS
)
