"""Perplexity against compute and against measured time: boosted, its cheaper forms, and other standard models."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import (
    BOOSTED,
    STANDARD,
    perplexity,
    read,
    short,
    tag,
    text_runs,
    text_table,
)
from boosted_attention.lab.language import Arm, recipe, timing_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, exact, render, trained
from boosted_attention.statistics import estimate

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Perplexity against compute and time"


def arms(preset: Preset) -> dict[str, Arm]:
    model = recipe(preset).model
    d, n, h = model.d_model, model.n_layers, model.n_heads
    wider = {f"standard, d={w}": {**STANDARD, "d_model": w} for w in (d + 2 * h, d + 4 * h, d + 8 * h)}
    deeper = {f"standard, {n + k} layers": {**STANDARD, "n_layers": n + k} for k in (1, 2)}
    return {
        "standard": STANDARD,
        **wider,
        **deeper,
        "boosted": BOOSTED,
        "boosted, shared K/V": {"attention": "boosted-shared"},
        "boosted, last half": {**BOOSTED, "boosted_layers": f"last:{max(1, n // 2)}"},
        "boosted, one K/V head in the correction": {**BOOSTED, "attention_options": {"n_kv_heads": [h, 1]}},
    }


def runs(preset: Preset) -> list[Run]:
    return [*text_runs(preset, arms(preset)), timing_run(preset, arms(preset), "pareto")]


def dominated(points: dict[str, tuple[float, float]]) -> dict[str, list[str]]:
    """For each (cost, perplexity), who has less of both."""
    return {
        name: [
            other
            for other, (cost, value) in points.items()
            if other != name and cost <= points[name][0] and value < points[name][1]
        ]
        for name in points
    }


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, ["test perplexity", "training FLOPs (1e12)", "step time (standard = 1)"])
    ratios = results(timing_run(preset, arms(preset), "pareto"))["measured"]
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, arms(preset))
        by_flops, by_time = {}, {}
        for name, by_seed in found.items():
            one = next(iter(by_seed.values()))
            flops = 3 * one["flops_per_token"] * one["tokens"] / 1e12
            values = perplexity(by_seed)
            table.add_row(f"{name}{tag(preset, corpus)}", [trained(values), exact(flops), exact(ratios[name])])
            mean = estimate(list(values.values())).mean
            by_flops[name], by_time[name] = (flops, mean), (ratios[name], mean)
        for what, points in (("FLOPs", by_flops), ("step time", by_time)):
            beaten = {name: by for name, by in dominated(points).items() if by}
            front = [name for name in points if name not in beaten]
            text = "; ".join(f"{name} by {' and '.join(by)}" for name, by in beaten.items()) or "none"
            table.notes.append(
                f"{short(preset, corpus)}, {what}, by the means: on the front {', '.join(front)}. Dominated: {text}."
            )
    return table
