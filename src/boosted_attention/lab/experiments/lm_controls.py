"""Is it the residual, or more attention, more parameters, more compute?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import (
    BOOSTED,
    STANDARD,
    TWICING,
    add_arms,
    compare,
    describe_matched,
    main_arms,
    matched_arm,
    perplexity,
    read,
    relative,
    require_alike,
    short,
    text_runs,
    text_table,
)
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
    matched = {name: arms(preset)[name] for name in ("param-fair", "FLOP-matched width")}
    table.notes.append(describe_matched(preset, matched))
    for corpus in preset.text.corpora:
        found = {}
        for name, arm in arms(preset).items():
            with suppress(KeyError):
                found |= read(preset, results, corpus, {name: arm})
        with suppress(KeyError):
            in_time = {seed: results(timed(preset, corpus, seed)) for seed in preset.text.seeds}
            table.notes.append(f"{short(preset, corpus)}: {describe_timed(in_time)}.")
            if all(result["d_model"] is not None for result in in_time.values()):
                found[TIMED] = in_time
        require_alike(found, corpus)
        add_arms(table, preset, corpus, found)
        values = {name: perplexity(by_seed) for name, by_seed in found.items()}
        compare(table, preset, corpus, [relative(values, "boosted", name) for name in values if name != "boosted"])
    return table


def describe_timed(by_seed: Mapping[int, dict[str, Any]]) -> str:
    """All seeds build on one timing run."""
    result = next(iter(by_seed.values()))
    width, ratio = result["measured"]["nearest"], result["measured"]["step_time"]
    if result["d_model"] is None:
        return f"no standard model takes the time of a boosted step (the nearest, d_model={width}, takes {ratio:.2f})"
    return f"the time-matched standard model has d_model={width} and takes {ratio:.2f} of the time of a boosted step"
