"""Section 6.4: gates, hull distance and entropy of the trained models, with the controls the paper lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from boosted_attention.analysis.entropy import by_layer
from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.text import (
    BOOSTED,
    FULL_SIZE,
    STANDARD,
    Pair,
    compare,
    scale_of,
    short,
    tag,
    text_runs,
    zero,
)
from boosted_attention.lab.language import analysis_run, recipe
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Cell, Table, interval, render
from boosted_attention.statistics import Estimate, estimate

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "What the rounds do (Section 6.4)"
Found = Mapping[int, dict[str, Any]]  # {seed: analysis}
PAPER = {
    "mean gate": (0.33, 0.49, 0.39, 0.36),
    "spread of gates": (0.08, 0.22, None, None),
    "hull distance": (0.88, 5.19, 4.25, 3.41),
    "entropy ratio, round 0": (None, 27.0, None, None),
    "entropy ratio, round 1": (None, -45.0, None, None),
}


Measure = Callable[[dict[str, Any], int], float | None]  # (analysis, layer)
RANGES = {"(%)": (0.0, 100.0), "correlation": (-1.0, 1.0)}  # of what a row's name says it is


def gate(key: str) -> Callable[[dict[str, Any], int], float]:
    return lambda found, layer: by_layer(found["gates"], 1, key)[layer]


def entropy(which: str, m: int) -> Callable[[dict[str, Any], int], float]:
    return lambda found, layer: by_layer(found["entropy"][which], m)[layer]


def ratio(m: int) -> Callable[[dict[str, Any], int], float]:
    return lambda found, layer: by_layer(found["entropy"]["ratios"], m, "percent")[layer]


def hull(kind: str, key: str, where: str = "paper", side: str = "model") -> Measure:
    """None where no position sees more values than a head has dimensions."""

    def measure(found: dict[str, Any], layer: int) -> float | None:
        row = found["hull"][side]["layers"][layer]
        if where not in row:
            return None
        value = row[where][kind][key]
        return 100 * value if key == "outside" else value

    return measure


def tokenwise(found: dict[str, Any], layer: int) -> float | None:
    return by_layer([row for row in found["entropy"]["model"] if row["round"]], 1, "correlation_with_gate")[layer]


def worth(found: dict[str, Any], layer: int) -> float:
    return 1000 * next(row["mean"] for row in found["importance"]["layers"] if row["layer"] == layer)


def dynamics(key: str, m: int) -> Callable[[dict[str, Any], int], float]:
    return lambda found, layer: by_layer(found["dynamics"], m, key)[layer]


BEYOND = "beyond head_dim"
FARTHER = "hull distance beyond head_dim, boosted over random (%)"
MEASURES: dict[str, Measure] = {
    "mean gate": gate("mean"),
    "spread of gates": gate("spread"),
    "gates above one half (%)": lambda found, layer: 100 * gate("open")(found, layer),
    "loss without the correction (millinats)": worth,
    "entropy, standard": entropy("against", 0),
    "entropy, round 0": entropy("model", 0),
    "entropy, round 1": entropy("model", 1),
    "entropy ratio, round 0": ratio(0),
    "entropy ratio, round 1": ratio(1),
    "sharpness and gate, correlation over tokens": tokenwise,
    "hull distance": hull("boosted", "mean"),
    "hull distance, random correction": hull("random correction", "mean"),
    "hull distance, twicing": hull("twicing", "mean"),
    "hull distance, standard": hull("first estimate", "mean", side="against"),
    "relative hull distance": hull("boosted", "relative"),
    "relative hull distance, random correction": hull("random correction", "relative"),
    "outside the hull (%)": hull("boosted", "outside"),
    "outside the hull, random correction (%)": hull("random correction", "outside"),
    "outside the hull, twicing (%)": hull("twicing", "outside"),
    "outside the hull, standard (%)": hull("first estimate", "outside", side="against"),
    "hull distance beyond head_dim": hull("boosted", "mean", BEYOND),
    "hull distance beyond head_dim, random correction": hull("random correction", "mean", BEYOND),
    "outside the hull beyond head_dim (%)": hull("boosted", "outside", BEYOND),
    "outside the hull beyond head_dim, random correction (%)": hull("random correction", "outside", BEYOND),
    "norm of x - F over norm of x, round 0": dynamics("left", 0),
    "norm of x - F over norm of x, round 1": dynamics("left", 1),
    "cosine of correction and residual": dynamics("cosine", 1),
}


def analyses(preset: Preset, corpus: str) -> dict[int, Run]:
    return {seed: analysis_run(preset, corpus, BOOSTED, STANDARD, seed) for seed in preset.text.seeds}


def runs(preset: Preset) -> list[Run]:
    found = [run for corpus in preset.text.corpora for run in analyses(preset, corpus).values()]
    return [*text_runs(preset, {"boosted": BOOSTED, "standard": STANDARD}), *found]


def needed(preset: Preset) -> list[Run]:
    """The analyses hold all that is shown."""
    return [run for corpus in preset.text.corpora for run in analyses(preset, corpus).values()]


def collect(preset: Preset, results: Results) -> Table:
    n_layers = recipe(preset).model.n_layers
    table = Table(TITLE, [f"layer {i}" for i in range(n_layers)], precision=3)
    table.scale = scale_of(preset)
    for corpus in preset.text.corpora:
        found = {seed: results(run) for seed, run in analyses(preset, corpus).items()}
        first = corpus == preset.text.corpora[0]
        for name, measure in MEASURES.items():
            table.add_row(f"{name}{tag(preset, corpus)}", cells(preset, found, name, measure, n_layers))
            if first and tag(preset, corpus):  # claims mean the first corpus
                for column, cell in zip(table.columns, table.rows[f"{name}{tag(preset, corpus)}"], strict=True):
                    if cell is not None:
                        table.quantities[f"{name} | {column}"] = cell.ours
        add_differences(table, preset, corpus, found)
        if first:
            add_relations(table, found)
        one = next(iter(found.values()))
        picked = "; ".join(f"seed {seed}: {a['importance']['worth_boosting']}" for seed, a in found.items())
        table.notes.append(
            f"{short(preset, corpus)}: {one['sequences']} test sequences of {one['length']} tokens, data {one['data']}."
            f" Layers whose correction is missed, the interval over sequences above zero: {picked}."
        )
    table.notes.append(
        "Entropies in nats over all query positions; ratios in percent of the standard model's layer. Hull distances "
        "at the paper's positions (up to 64 visible values) unless said otherwise. Importance is the loss without the "
        "layer's correction minus the loss with it. The paper's averages are of one model."
    )
    return table


def cells(preset: Preset, found: Found, name: str, measure: Measure, n_layers: int) -> list[Cell | None]:
    paper = PAPER.get(name, ()) if preset.text.recipe == FULL_SIZE else ()
    shown: list[Cell | None] = []
    for layer in range(n_layers):
        values = [measure(a, layer) for a in found.values()]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            shown.append(None)
            continue
        shown.append(Cell(bounded(name, estimate(known)), paper[layer] if layer < len(paper) else None))
    return shown


def bounded(name: str, e: Estimate) -> Estimate:
    """A t interval of few seeds may leave the range of the quantity."""
    for part, (low, high) in RANGES.items():
        if part in name:
            return replace(e, low=max(low, e.low), high=min(high, e.high))
    return e


def mean_entropy(found: Found, which: str, m: int) -> dict[int, float]:
    by_seed = {seed: by_layer(a["entropy"][which], m) for seed, a in found.items()}
    return {seed: sum(values.values()) / len(values) for seed, values in by_seed.items()}


def add_differences(table: Table, preset: Preset, corpus: str, found: Found) -> None:
    """Entropy of the rounds against the standard model's, over all layers; layer 1's gates against the others'."""
    standard, first, second = (mean_entropy(found, *which) for which in (("against", 0), ("model", 0), ("model", 1)))
    spread = {seed: by_layer(a["gates"], 1, "spread") for seed, a in found.items()}
    pairs: list[Pair] = [
        ("entropy, round 0 - standard", first, standard, 3.34 - 2.71),
        ("entropy, round 1 - standard", second, standard, 2.55 - 2.71),
    ]
    if len(table.columns) > 1:
        others = {
            seed: values[1] - max(v for layer, v in values.items() if layer != 1) for seed, values in spread.items()
        }
        pairs.append(("spread of gates, layer 1 - other layers", others, zero(others), None))
    at_scale = scale_of(preset) is not None
    compare(table, preset, corpus, [(name, a, b, None if at_scale else paper) for name, a, b, paper in pairs])
    if corpus == preset.text.corpora[0]:
        for name, values in (("standard", standard), ("round 0", first), ("round 1", second)):
            table.quantities[f"entropy | {name}"] = estimate(list(values.values()))


def add_relations(table: Table, found: Found) -> None:
    names = {
        "correlation of sharpness and gate": "sharpness and gate",
        "rank correlation of hull distance and gate": "hull distance and gate, ranks",
        "rank correlation of importance and gate": "importance and gate, ranks",
    }
    for quantity, name in names.items():
        values = [a["relations"][name] for a in found.values()]
        if None not in values:
            table.quantities[quantity] = bounded(quantity, estimate(values))
            shown = interval(table.quantities[quantity], 2)
            table.notes.append(f"{quantity[0].upper()}{quantity[1:]} over layers: {shown}.")
    layers = {seed: a["hull"]["model"]["layers"] for seed, a in found.items()}
    outside = [100 * average([row["paper"]["boosted"]["outside"] for row in rows]) for rows in layers.values()]
    name = "share of outputs outside the hull (%)"
    table.quantities[name] = bounded(name, estimate(outside))
    if all(BEYOND in row for rows in layers.values() for row in rows):  # equal norms: distances can be compared
        table.quantities[FARTHER] = estimate(
            [average([farther(row[BEYOND]) for row in rows]) for rows in layers.values()]
        )


def farther(kinds: dict[str, Any]) -> float:
    """How much farther from the hull the correction leads than a random one of the same norm, in percent."""
    return 100 * (kinds["boosted"]["mean"] / kinds["random correction"]["mean"] - 1)


def average(values: list[float]) -> float:
    return sum(values) / len(values)
