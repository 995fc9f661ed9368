"""Is it the residual, or more attention, more parameters, more compute?"""

from __future__ import annotations

from contextlib import suppress

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import (
    BOOSTED,
    STANDARD,
    TWICING,
    add_arms,
    main_arms,
    matched_arm,
    percent,
    perplexity,
    read,
    require_alike,
    text_runs,
    text_table,
    zero,
)  # fmt: skip
from boosted_attention.lab.language import Arm, derived_run, recipe, timing_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, render

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Controls: is it the residual?"
TIMED = "time-matched width"


def arms(preset: Preset) -> dict[str, Arm]:
    model = recipe(preset).model
    half = f"last:{max(1, model.n_layers // 2)}"
    return {
        **main_arms(preset),
        "parallel": {"attention": "parallel"},
        "sequential": {"attention": "sequential"},
        "FLOP-matched width": matched_arm(preset, BOOSTED, "flops"),
        "one more layer": {**STANDARD, "n_layers": model.n_layers + 1},
        "twice the heads": {**STANDARD, "n_heads": 2 * model.n_heads},
        "twicing in the last layers": {**TWICING, "boosted_layers": half},
        "differential": {"attention": "differential"},
        "differential-v2": {"attention": "differential-v2"},
        "gated": {"attention": "gated"},
        "boosted-differential": {"attention": "boosted-differential"},
    }


def timings(preset: Preset) -> Run:
    """The boosted model first, then standard models by width, in steps of two heads' worth."""
    model = recipe(preset).model
    widths = range(model.d_model, 2 * model.d_model + 1, 2 * model.n_heads)
    return timing_run(preset, {"boosted": BOOSTED, **{str(d): {**STANDARD, "d_model": d} for d in widths}}, "widths")


def timed(preset: Preset, corpus: str, seed: int) -> Run:
    return derived_run(preset, corpus, seed, TIMED, "train_time_matched", timings(preset), {})


def runs(preset: Preset) -> list[Run]:
    matched = [timed(preset, corpus, seed) for corpus in preset.text.corpora for seed in preset.text.seeds]
    return [*text_runs(preset, arms(preset)), timings(preset), *matched]


def needed(preset: Preset) -> list[Run]:
    """The question of the title; every further arm is shown as it is there."""
    return text_runs(preset, {**main_arms(preset), "parallel": arms(preset)["parallel"]})


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in reversed(preset.text.corpora):
        found = {}
        for name, arm in arms(preset).items():
            with suppress(KeyError):
                found |= read(preset, results, corpus, {name: arm})
        with suppress(KeyError):
            found[TIMED] = {seed: results(timed(preset, corpus, seed)) for seed in preset.text.seeds}
        require_alike(found, corpus)
        add_arms(table, preset, corpus, found)
        values = {name: perplexity(by_seed) for name, by_seed in found.items()}
        pairs = []
        for name in values:
            if name != "boosted":
                difference = percent(values["boosted"], values[name])
                pairs.append((f"boosted - {name}", difference, zero(difference), None))
        table.compare(pairs)
        if TIMED in found:
            one = next(iter(found[TIMED].values()))["measured"]
            table.notes.append(
                f"The time-matched standard model has d_model={one['d_model']}; its step took {one['step_time']:.2f} "
                "of the boosted model's."
            )
    return table
