"""Section 6.4: gates, hull distance and entropy of the trained models, with the controls the paper lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from boosted_attention.lab.table import Cell, Table, render, trained
from boosted_attention.statistics import estimate, paired_difference

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


def gate(key: str) -> Callable[[dict[str, Any], int], float]:
    return lambda found, layer: by_layer(found["gates"], 1, key)[layer]


def entropy(which: str, m: int) -> Callable[[dict[str, Any], int], float]:
    return lambda found, layer: by_layer(found["entropy"][which], m)[layer]


def ratio(m: int) -> Callable[[dict[str, Any], int], float]:
    return lambda found, layer: by_layer(found["entropy"]["ratios"], m, "percent")[layer]


def hull(kind: str, key: str, where: str = "paper", scale: float = 1.0) -> Callable[[dict[str, Any], int], float]:
    return lambda found, layer: scale * found["hull"]["model"]["layers"][layer][where][kind][key]


def worth(found: dict[str, Any], layer: int) -> float:
    return 1000 * next(row["mean"] for row in found["importance"]["layers"] if row["layer"] == layer)


def dynamics(key: str, m: int) -> Callable[[dict[str, Any], int], float]:
    return lambda found, layer: by_layer(found["dynamics"], m, key)[layer]


BEYOND = "beyond head_dim"
MEASURES: dict[str, Callable[[dict[str, Any], int], float]] = {
    "mean gate": gate("mean"),
    "spread of gates": gate("spread"),
    "gates above one half (%)": lambda found, layer: 100 * gate("open")(found, layer),
    "loss without the correction (millinats)": worth,
    "entropy, standard": entropy("against", 0),
    "entropy, round 0": entropy("model", 0),
    "entropy, round 1": entropy("model", 1),
    "entropy ratio, round 0": ratio(0),
    "entropy ratio, round 1": ratio(1),
    "hull distance": hull("boosted", "mean"),
    "hull distance, relative": hull("boosted", "relative"),
    "hull distance, random correction": hull("random correction", "mean"),
    "hull distance, twicing": hull("twicing", "mean"),
    "outside the hull (%)": hull("boosted", "outside", scale=100),
    "outside the hull, random correction (%)": hull("random correction", "outside", scale=100),
    "outside the hull, twicing (%)": hull("twicing", "outside", scale=100),
    "outside the hull beyond head_dim (%)": hull("boosted", "outside", BEYOND, 100),
    "outside the hull beyond head_dim, random correction (%)": hull("random correction", "outside", BEYOND, 100),
    "||x - F|| / ||x||, round 0": dynamics("left", 0),
    "||x - F|| / ||x||, round 1": dynamics("left", 1),
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


def cells(
    preset: Preset, found: Found, name: str, measure: Callable[[dict[str, Any], int], float], n_layers: int
) -> list[Cell | None]:
    paper = PAPER.get(name, ()) if preset.text.recipe == FULL_SIZE else ()
    shown: list[Cell | None] = []
    for layer in range(n_layers):
        try:
            values = {seed: measure(a, layer) for seed, a in found.items()}
        except KeyError:  # no position sees more values than a head has dimensions
            shown.append(None)
            continue
        shown.append(trained(values, paper[layer] if layer < len(paper) else None))
    return shown


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
            table.quantities[quantity] = estimate(values)
            table.notes.append(f"{quantity[0].upper()}{quantity[1:]} over layers: {table.quantities[quantity]}.")
    learned, random = (outside(found, kind) for kind in ("boosted", "random correction"))
    table.quantities["share of outputs outside the hull (%)"] = estimate(list(learned.values()))
    table.quantities["outside the hull, boosted - random correction"] = paired_difference(learned, random)


def outside(found: Found, kind: str) -> dict[int, float]:
    """The share of all layers' sampled outputs that lie outside, in percent."""
    by_seed = {
        seed: [row["paper"][kind]["outside"] for row in a["hull"]["model"]["layers"]] for seed, a in found.items()
    }
    return {seed: 100 * sum(shares) / len(shares) for seed, shares in by_seed.items()}
