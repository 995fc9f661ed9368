"""What the arena rewards: how far perplexity falls for width, depth and tokens, for each per cent that they cost.

A form of attention that costs x % more must gain what x % buy elsewhere. Elasticity = ln(perplexity / standard's)
/ ln(cost / standard's): per cent of perplexity per per cent of cost. The question is ours, not the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from boosted_attention.chart import Figure, Panel, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import PLAIN, STANDARD, WIDE, Arm, all_arms
from boosted_attention.lab.experiments.language._shared import (
    ALIKE,
    Found,
    by_seed,
    compare_arms,
    describe_places,
    describe_times,
    located,
    note_diverged,
    percent,
    perplexity,
    places,
    read,
    relative,
    require_alike,
    row_label,
    short,
    text_table,
)
from boosted_attention.lab.experiments.language._trials import preset_steps, timing_trial, training_trial
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Cell, Table, cell, exactly, over_seeds
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import LanguageResult
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import from_json

TITLE = "What the arena rewards: width, depth, tokens"
DEEP, LONG = "half as many layers again", "twice the tokens"
INVESTMENTS = (WIDE, DEEP, LONG)
COSTS = ("FLOPs", "time")
OVER = {name: relative(name, STANDARD) for name in INVESTMENTS}
ELASTICITY = {(name, cost): Quantity(f"elasticity per {cost}, {name}") for name in INVESTMENTS for cost in COSTS}
COLUMNS = [
    "test perplexity",
    "against standard (%)",
    *(f"more {cost} (%)" for cost in COSTS),
    *(f"elasticity per {cost}" for cost in COSTS),
]


def own(preset: Preset) -> Preset:
    """The preset with this question's seeds on its first text, at the recipe's own rates."""
    text = preset.text
    seeds = text.reward_seeds or text.seeds
    plain = replace(text, seeds=seeds, corpora=text.corpora[:1], arms={}, arms_elsewhere={}, tuned=False, pilot=None)
    return replace(preset, text=plain)


def arms(preset: Preset) -> dict[str, Arm]:
    """The standard model, one that is half as wide again, and one with half as many layers again."""
    deep = {**PLAIN[STANDARD], "n_layers": 3 * preset.text.configuration().model.n_layers // 2}
    return {STANDARD: PLAIN[STANDARD], WIDE: all_arms(preset)[WIDE], DEEP: deep}


def longer(preset: Preset) -> dict[int, Trial]:
    """The standard model on twice the tokens, by seed."""
    (corpus,), steps = preset.text.corpora, 2 * preset_steps(preset)
    return {
        seed: training_trial(preset, corpus, PLAIN[STANDARD], seed, LONG, steps=steps) for seed in preset.text.seeds
    }


def timings(preset: Preset) -> Trial:
    return timing_trial(preset, arms(preset), "rewards")


def trials(preset: Preset) -> list[Trial]:
    one = own(preset)
    (corpus,) = one.text.corpora
    trained = [
        training_trial(one, corpus, arm, seed, name) for seed in one.text.seeds for name, arm in arms(one).items()
    ]
    return [timings(one), *trained, *longer(one).values()]


def elasticity(perplexities: BySeed, standard: BySeed, cost: float) -> dict[int, float]:
    """Per cent of perplexity per per cent of cost, seed by seed: below zero where the cost brings something.

    Args:
        perplexities: of the model that costs more.
        standard: of the standard model.
        cost: of the model, as a multiple of the standard one's.
    """
    return {seed: math.log(perplexities[seed] / standard[seed]) / math.log(cost) for seed in perplexities}


def costs(
    found: Mapping[str, Mapping[int, LanguageResult]], ratios: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """What each model costs in all, as a multiple of the standard one: FLOPs of its training, and time."""
    one = {name: next(iter(results.values())) for name, results in found.items()}
    base = one[STANDARD]
    return {
        name: {
            "FLOPs": result.flops_per_token * result.tokens / (base.flops_per_token * base.tokens),
            "time": ratios.get(name, 1.0) / ratios[STANDARD] * result.steps / base.steps,
        }
        for name, result in one.items()
    }


def collect(preset: Preset, results: Results) -> Table:
    one = own(preset)
    (corpus,) = one.text.corpora
    table = text_table(TITLE, one, COLUMNS)
    table.places = places(preset)
    found = read(one, results, corpus, arms(one))
    found.add(by_seed(results, LONG, longer(one)))
    require_alike(found, corpus)
    compare_arms(table, preset, corpus, found, list(OVER.values()))
    note_diverged(table, preset, corpus, found)
    if STANDARD in found:
        add_rows(table, preset, corpus, found, from_json(StepRatios, results(timings(one))).measured)
    table.notes.append(
        "Elasticity: per cent of perplexity for each per cent of cost, below zero where the cost pays. Rates are the "
        f"recipe's for all models. {ALIKE}"
    )
    table.notes += describe_times(results, timings(one))
    return table


def add_rows(table: Table, preset: Preset, corpus: str, found: Found, ratios: Mapping[str, float]) -> None:
    """A row per model: perplexity, what it costs more than the standard one, and what each per cent of that brings."""
    standard = perplexity(found[STANDARD])
    for name, cost in costs(found, ratios).items():
        own = perplexity(found[name])
        cells: list[Cell | None] = [Cell(over_seeds(own)), Cell(over_seeds(percent(own, standard)))]
        cells += [Cell(exactly(100 * (cost[kind] - 1))) for kind in COSTS]
        for kind in COSTS:
            if name == STANDARD:
                cells.append(None)
                continue
            values = over_seeds(elasticity(own, standard, cost[kind]))
            cells.append(cell(located(preset, corpus, ELASTICITY[name, kind]), values))
        table.add_row(row_label(preset, corpus, name), cells)


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    corpus = preset.text.corpora[0]
    panels = []
    for kind in COSTS:
        known = {name: table.quantities.get(located(preset, corpus, ELASTICITY[name, kind])) for name in INVESTMENTS}
        ours = {name: e for name, e in known.items() if e is not None}
        panels.append(
            Panel(
                x_label="",
                y_label=f"% of perplexity per % of {kind}",
                series=[measured("ours, 95 % interval", range(len(ours)), list(ours.values()), "points")],
                title=short(preset, corpus),
                ticks={float(i): name for i, name in enumerate(ours)},
                levels={"nothing gained": 0.0},
            )
        )
    return Figure(
        name="rewards",
        title="What width, depth and tokens bring",
        caption=f"Not in the paper: below zero, the cost pays. {describe_places(table)}",
        panels=panels,
    )


EXPERIMENT = Experiment(
    name="lm-rewards", title=TITLE, kind=Kind.LANGUAGE, order=103, trials=trials, collect=collect, figure=figure
)
