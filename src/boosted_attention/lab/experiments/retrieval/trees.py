"""Gradient-boosted trees on the retrieval task, on the samples that the attention models saw."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace

from boosted_attention.chart import Figure, Panel, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.retrieval._shared import (
    BAYES,
    SIX,
    accuracy,
    baseline_trial,
    baselines,
    bayes_accuracy,
    boosted,
    halfway,
    squared_error,
    task,
    trained_models,
    training_trial,
    where,
)
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import TWO_ROUNDS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Paired, Table, cell, exactly, over_seeds
from boosted_attention.lab.judging.verdicts import above
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.records import from_json
from boosted_attention.retrieval.task import RetrievalTask, Score
from boosted_attention.retrieval.training import RetrievalTraining
from boosted_attention.retrieval.trees import BoostedTrees

CONFIGURATION = SIX[0]  # the smallest of Table 2: there is a model for every dimension
TASK = task(*CONFIGURATION)
TITLE = f"Gradient-boosted trees beside attention, {where(CONFIGURATION)}: accuracy (%) and squared error"
SMALL, DEEP = "trees of 31 leaves", "deep trees"
TREES = {SMALL: BoostedTrees(), DEEP: BoostedTrees(max_leaves=None, shrinkage=1.0)}
AFTER = {SMALL: (1, 2, 5, 10, 20, 50), DEEP: (1, 2, 3, 4)}  # rounds that are scored, as far as a preset goes
ROUNDS = (1, 2)  # of attention
CEILING = Quantity("accuracy | Bayes", BAYES[CONFIGURATION])
ACCURACY = {(kind, m): Quantity(f"accuracy | {kind}, {m} rounds") for kind, rounds in AFTER.items() for m in rounds}
OVER_TREES = {m: Quantity(f"attention, M={m} - {SMALL}") for m in ROUNDS}
EARLY = Quantity(f"{DEEP}, third round - halfway from the first to the best")

ByRounds = Mapping[int, dict[int, Score]]  # rounds: seed: score


def after(preset: Preset, kind: str) -> list[int]:
    """The rounds after which trees are scored; the last are all of them."""
    return [m for m in AFTER[kind] if m <= preset.tree_rounds]


def tree_trial(preset: Preset, kind: str, seed: int) -> Trial:
    """One kind of trees on the samples of one seed."""
    return Trial(
        work="retrieval.trees",
        config={
            "task": asdict(RetrievalTask(**TASK)),
            "trees": asdict(replace(TREES[kind], n_rounds=after(preset, kind)[-1])),
            "training": asdict(RetrievalTraining(steps=preset.steps)),
            "seed": seed,
            "after": after(preset, kind),
            "test_size": preset.test_size,
        },
        label=f"{kind}, {where(CONFIGURATION)}, seed {seed}",
        group=kind,
        seconds=1.0 + preset.steps * {SMALL: 0.08, DEEP: 0.13}[kind],
    )


def attention_trials(preset: Preset) -> list[Trial]:
    return [baseline_trial(preset, TASK), *(training_trial(preset, TASK, boosted(m)) for m in ROUNDS)]


def trials(preset: Preset) -> list[Trial]:
    grown = [tree_trial(preset, kind, seed) for kind in TREES for seed in range(preset.tree_seeds)]
    return [*attention_trials(preset), *grown]


def grown(preset: Preset, results: Results, kind: str) -> ByRounds:
    """Scores of trees by rounds and seed; KeyError if they are not there."""
    found = {
        seed: from_json(dict[int, Score], results(tree_trial(preset, kind, seed))) for seed in range(preset.tree_seeds)
    }
    return {m: {seed: scores[m] for seed, scores in found.items()} for m in after(preset, kind)}


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, ["accuracy", "squared error"], precision=2)
    bayes = baselines(results, baseline_trial(preset, TASK)).bayes
    table.add_row("Bayes", [cell(CEILING, bayes_accuracy(preset, results, TASK)), Cell(exactly(bayes.mse))])
    attention = {m: trained_models(results, training_trial(preset, TASK, boosted(m))) for m in ROUNDS}
    for m, found in attention.items():
        cells = [Cell(over_seeds(values)) for values in (accuracy(found), squared_error(found))]
        table.add_row(f"attention, M={m}", cells)
    trees: dict[str, ByRounds] = {}
    for kind in TREES:
        with suppress(KeyError):
            trees[kind] = grown(preset, results, kind)
    for kind, by_rounds in trees.items():
        for m, scores in by_rounds.items():
            right, error = over_seeds(accuracy(scores)), over_seeds(squared_error(scores))
            table.add_row(f"{kind}, {m} round{'s' * (m > 1)}", [cell(ACCURACY[kind, m], right), Cell(error)])
    compare_trees(table, {m: accuracy(found) for m, found in attention.items()}, trees)
    absent = [kind for kind in TREES if kind not in trees]
    if absent:
        table.notes.append(f"Not run: {', '.join(absent)}; they need scikit-learn.")
    table.notes.append(
        f"Trees are fitted to the {preset.steps * RetrievalTraining().batch:,} samples that the attention model of the "
        f"same seed saw, {preset.tree_seeds} seed{'s' * (preset.tree_seeds > 1)} of them, one model per dimension; "
        f"shrinkage {TREES[SMALL].shrinkage:g}, of {DEEP} {TREES[DEEP].shrinkage:g}."
    )
    return table


def compare_trees(table: Table, attention: Mapping[int, Mapping[int, float]], trees: Mapping[str, ByRounds]) -> None:
    """Add the differences whose trees are there, over the seeds that trees and attention share."""
    if SMALL in trees:
        last = accuracy(trees[SMALL][max(trees[SMALL])])
        shared = {m: {seed: right[seed] for seed in last if seed in right} for m, right in attention.items()}
        pairs = [(m, right) for m, right in shared.items() if right]
        table.compare([Paired(OVER_TREES[m], right, {seed: last[seed] for seed in right}) for m, right in pairs])
    if DEEP in trees:
        right = {m: accuracy(scores) for m, scores in trees[DEEP].items()}
        best = {seed: max(values[seed] for values in right.values()) for seed in right[1]}
        table.compare([Paired(EARLY, right[3], halfway(right[1], best))])
    else:
        table.missing[EARLY] = f"{DEEP} were not run"


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    series = []
    for kind, rounds in AFTER.items():
        there = [m for m in rounds if ACCURACY[kind, m] in table.quantities]
        if there:
            series.append(measured(kind, there, [table.quantities[ACCURACY[kind, m]] for m in there]))
    attention = {m: accuracy(trained_models(results, training_trial(preset, TASK, boosted(m)))) for m in ROUNDS}
    series.append(measured("attention", ROUNDS, [over_seeds(right) for right in attention.values()]))
    panel = Panel(
        x_label="rounds",
        y_label="accuracy (%)",
        series=series,
        levels={"Bayes predictor": table.quantities[CEILING].mean},
        log_x=True,
    )
    caption = "Not in the paper: boosting with trees on the samples that attention is trained with."
    return Figure(name="trees", title="Trees and attention by rounds", caption=caption, panels=[panel])


CLAIMS = [
    claim(
        "trees-early",
        TWO_ROUNDS,
        EARLY,
        above(),
        "Boosting deep trees, too, three rounds bring more than half of what rounds can bring.",
        section="2.1",
        paper="two to three rounds",
        role=Role.ASIDE,
    )
]

EXPERIMENT = Experiment(
    name="trees",
    title=TITLE,
    kind=Kind.SYNTHETIC,
    order=97,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    needed=attention_trials,
    by_default=True,
)
