"""A question of ours: which layers recall associations, and compose permutations, at equal parameters?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from boosted_attention.attention.catalog import list_attention
from boosted_attention.chart import Figure, Panel, beside, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._trials import stated
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import KV_SOURCE, RECALL, RESIDUAL_IS_KEY
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Paired, Table, cell, exactly, over_seeds
from boosted_attention.lab.judging.verdicts import above
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import Diverged
from boosted_attention.lab.work.recall import TASKS, outcome_of
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.planning.matching import match_cost
from boosted_attention.recall.scoring import RecallResult
from boosted_attention.train.config import TrainingConfig

TITLE = "Recall and composition at equal parameters: accuracy (%)"
RECALLED, COMPOSED = "associative recall", "permutations of S5"
TASK: dict[str, dict[str, Any]] = {
    RECALLED: {"name": "associative", "length": 32, "n_keys": 32, "n_values": 32},
    COMPOSED: {"name": "permutations", "length": 8},
}
BOOSTED, STANDARD, PARALLEL, INPUT = "boosted", "standard", "parallel", "boosted-input"
OVER = {(name, rival): Quantity(f"{name}, boosted - {rival}") for name in TASK for rival in (STANDARD, PARALLEL, INPUT)}
# Chosen on short runs for the standard and the boosted layer, before any result was kept.
TRAINING = TrainingConfig(optimizer="muon", batch_size=32, lr=8e-3, matrix_lr=0.02, schedule="linear", horizon=0)
SECONDS = 0.02  # of a step, roughly: at this size most of it is overhead


def layers(preset: Preset) -> list[str]:
    """The layers that are compared."""
    return list(preset.recall.layers) or list_attention()


@lru_cache(maxsize=256)
def model_for(name: str, layer: str, d_model: int, n_layers: int) -> LanguageModelConfig:
    """A layer's model for a task, as wide as the parameters of the boosted one allow."""
    options = {key: value for key, value in TASK[name].items() if key != "name"}
    task = TASKS[TASK[name]["name"]](**options)
    boosted = LanguageModelConfig(
        vocab_size=task.vocab_size,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=2,
        max_len=2 * task.length,
        attention=BOOSTED,
        positions="rotary",
        init="zero",
    )
    return boosted if layer == BOOSTED else match_cost(replace(boosted, attention=layer), boosted.num_params())


def one_trial(preset: Preset, name: str, layer: str, seed: int) -> Trial:
    size = preset.recall
    model = model_for(name, layer, size.d_model, size.n_layers)
    training = replace(TRAINING, steps=size.steps, seed=seed)
    return Trial(
        work="recall.train",
        config={"task": TASK[name], "model": stated(model), "training": stated(training), "test_size": size.test_size},
        label=f"{layer}, {name}, seed {seed}",
        group=f"{layer}, {name}",
        seconds=0.5 + SECONDS * size.steps,
    )


def trials_of(preset: Preset, chosen: list[str]) -> list[Trial]:
    seeds = preset.recall.seeds
    return [one_trial(preset, name, layer, seed) for name in TASK for layer in chosen for seed in seeds]


def trials(preset: Preset) -> list[Trial]:
    return trials_of(preset, layers(preset))


def needed(preset: Preset) -> list[Trial]:
    return trials_of(preset, [STANDARD, BOOSTED])


@dataclass
class Found:
    """Results by layer, task and seed, of the layers that were run; a task on which a training diverged has none."""

    trained: dict[str, dict[str, dict[int, RecallResult]]]
    diverged: dict[tuple[str, str], dict[int, Diverged]]  # by layer and task


def found_by(preset: Preset, results: Results) -> Found:
    """Read the results of the layers that have them all."""
    found = Found(trained={}, diverged={})
    for layer in layers(preset):
        with suppress(KeyError):  # not there
            outcomes = {
                name: {seed: outcome_of(results(one_trial(preset, name, layer, seed))) for seed in preset.recall.seeds}
                for name in TASK
            }
            found.trained[layer] = {}
            for name, by_seed in outcomes.items():
                diverged = {seed: one for seed, one in by_seed.items() if isinstance(one, Diverged)}
                if diverged:
                    found.diverged[layer, name] = diverged
                else:
                    read = {seed: one for seed, one in by_seed.items() if isinstance(one, RecallResult)}
                    found.trained[layer][name] = read
    return found


def trained(by_seed: Mapping[int, RecallResult]) -> dict[int, float]:
    """Accuracy at the trained length."""
    return {seed: result.trained for seed, result in by_seed.items()}


def doubled(by_seed: Mapping[int, RecallResult]) -> dict[int, float]:
    """Accuracy at twice the trained length."""
    return {seed: result.doubled for seed, result in by_seed.items()}


def accuracy_of(name: str, layer: str) -> Quantity:
    """Accuracy at the trained length."""
    return Quantity(f"{name} | {layer}")


def collect(preset: Preset, results: Results) -> Table:
    columns = [f"{name}, {where}" for name in TASK for where in ("trained length", "twice it")]
    table = Table(TITLE, [*columns, "parameters (k)"])
    table.places[""] = Place(kind=Kind.SYNTHETIC, text="sequence tasks")
    found = found_by(preset, results)
    for layer, by_task in found.trained.items():
        cells: list[Cell | None] = []
        for name in TASK:
            if name not in by_task:
                cells += [None, None]
                continue
            own, longer = trained(by_task[name]), doubled(by_task[name])
            cells += [cell(accuracy_of(name, layer), over_seeds(own)), Cell(over_seeds(longer))]
        sizes = [result.parameters / 1e3 for by_seed in by_task.values() for result in by_seed.values()]
        table.add_row(layer, [*cells, Cell(exactly(sum(sizes) / len(sizes))) if sizes else None])
    for (name, rival), quantity in OVER.items():
        diverged = [layer for layer in (BOOSTED, rival) if (layer, name) in found.diverged]
        if diverged:
            table.failed[quantity] = f"{' and '.join(diverged)} diverged"
        elif rival not in found.trained:
            table.missing[quantity] = f"{rival} was not run"
        else:
            ours, theirs = (trained(found.trained[layer][name]) for layer in (BOOSTED, rival))
            table.compare([Paired(quantity, ours, theirs)])
    for (layer, name), by_seed in found.diverged.items():
        told = "; ".join(f"seed {seed}: {one.diverged}" for seed, one in by_seed.items())
        table.notes.append(f"{layer} diverged on {name} and has no numbers there: {told}.")
    absent = [layer for layer in layers(preset) if layer not in found.trained]
    if absent:
        table.notes.append(f"Not run: {', '.join(absent)}.")
    length = {name: options["length"] for name, options in TASK.items()}
    table.notes.append(
        f"Models of {preset.recall.n_layers} layer{'s' * (preset.recall.n_layers > 1)} with rotary positions, "
        f"{preset.recall.steps} steps of Muon on fresh sequences without a curriculum; trained at {length[RECALLED]} "
        f"tokens ({length[RECALLED] // 4} pairs) and {length[COMPOSED]} permutations; widths as parameters allow. "
        "One learning rate serves all layers, chosen on short runs of the standard and the boosted one."
    )
    table.notes.append(
        "Recall takes two attentions, the second of which reads what the first wrote; a model of one layer has them "
        "only within it. Permutations are drawn from the four swaps of neighbours, whose products are all of S5."
    )
    return table


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    found = found_by(preset, results)
    panels = []
    for name in TASK:
        own = {layer: by_task[name] for layer, by_task in found.trained.items() if name in by_task}
        if not own:
            continue
        series = []
        for i, (label, of) in enumerate((("trained length", trained), ("twice it", doubled))):
            offset, width = beside(2, i)
            bars = [over_seeds(of(by_seed)) for by_seed in own.values()]
            series.append(measured(label, [x + offset for x in range(len(own))], bars, style="bars", width=width))
        ticks = {float(x): layer for x, layer in enumerate(own)}
        panels.append(Panel(title=name, x_label="layer", y_label="accuracy (%)", series=series, ticks=ticks))
    caption = "Not in the paper: models of one size, by attention layer."
    return Figure(name="recall", title="Recall and composition", caption=caption, panels=panels)


CLAIMS = [
    claim(
        "recall-associations",
        RECALL,
        OVER[RECALLED, STANDARD],
        above(),
        "Boosted attention recalls more associations than a standard model with as many parameters.",
        paper="not tested",
    ),
    claim(
        "recall-permutations",
        RECALL,
        OVER[COMPOSED, STANDARD],
        above(),
        "Boosted attention composes more permutations than a standard model with as many parameters.",
        paper="not tested",
    ),
    claim(
        "recall-residual",
        RESIDUAL_IS_KEY,
        OVER[RECALLED, PARALLEL],
        above(),
        "A second attention on x itself, without the residual, recalls fewer associations.",
        paper="not tested",
        role=Role.CONTROL,
    ),
    claim(
        "recall-kv",
        KV_SOURCE,
        OVER[RECALLED, INPUT],
        above(),
        "With keys and values from the input a correction recalls fewer associations.",
        paper="not tested",
        role=Role.CONTROL,
    ),
]

EXPERIMENT = Experiment(
    name="recall",
    title=TITLE,
    kind=Kind.SYNTHETIC,
    order=101,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    needed=needed,
    by_default=True,
)
