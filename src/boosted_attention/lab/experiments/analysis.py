"""Section 6.4: gates, hull distance and entropy of the trained models, with the controls the paper lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from boosted_attention.analysis.dynamics import RoundDynamics
from boosted_attention.analysis.examine import Analysis, Relations
from boosted_attention.analysis.gates import GateFinding
from boosted_attention.analysis.hull import (
    BOOSTED_OUTPUT,
    FIRST_ESTIMATE,
    RANDOM_CORRECTION,
    TWICING,
    HullDistances,
    HullFinding,
    LayerHull,
)
from boosted_attention.analysis.survey import by_layer
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
from boosted_attention.records import from_json
from boosted_attention.statistics import Estimate, estimate

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "What the rounds do (Section 6.4)"
Found = Mapping[int, Analysis]  # by seed


@dataclass(frozen=True, kw_only=True)
class PaperNumbers:
    """What the paper's Section 6.4 gives, by layer where it is a tuple; None where a layer's number is not given."""

    mean_gate: tuple[float | None, ...]
    spread_of_gates: tuple[float | None, ...]
    hull_distance: tuple[float | None, ...]
    entropy_ratio_round_0: tuple[float | None, ...]  # in percent of the standard model's layer
    entropy_ratio_round_1: tuple[float | None, ...]
    entropy_standard: float  # mean over layers and heads, in nats
    entropy_round_0: float
    entropy_round_1: float
    context: int  # tokens of the sequences behind these entropies


PAPER = PaperNumbers(
    mean_gate=(0.33, 0.49, 0.39, 0.36),
    spread_of_gates=(0.08, 0.22, None, None),
    hull_distance=(0.88, 5.19, 4.25, 3.41),
    entropy_ratio_round_0=(None, 27.0, None, None),
    entropy_ratio_round_1=(None, -45.0, None, None),
    entropy_standard=2.71,
    entropy_round_0=3.34,
    entropy_round_1=2.55,
    context=256,
)
PAPER_ROWS = {
    "mean gate": PAPER.mean_gate,
    "spread of gates": PAPER.spread_of_gates,
    "hull distance": PAPER.hull_distance,
    "entropy ratio, round 0": PAPER.entropy_ratio_round_0,
    "entropy ratio, round 1": PAPER.entropy_ratio_round_1,
}

Measure = Callable[[Analysis, int], float | None]  # (analysis, layer)
RANGES = {"(%)": (0.0, 100.0), "correlation": (-1.0, 1.0)}  # of what a row's name says it is


def gate(value: Callable[[GateFinding], float]) -> Measure:
    return lambda found, layer: value(by_layer(found.gates, 1)[layer])


def entropy(m: int) -> Measure:
    return lambda found, layer: by_layer(found.entropy.model, m)[layer].mean


def entropy_of_standard(found: Analysis, layer: int) -> float:
    return by_layer(found.entropy.against or [], 0)[layer].mean


def ratio(m: int) -> Measure:
    return lambda found, layer: by_layer(found.entropy.ratios or [], m)[layer].percent


def at_the_papers(row: LayerHull) -> dict[str, HullDistances]:
    return row.paper


def beyond_head_dim(row: LayerHull) -> dict[str, HullDistances] | None:
    """None where no position sees more values than a head has dimensions."""
    return row.beyond_head_dim


def mean(distances: HullDistances) -> float:
    return distances.mean


def relative(distances: HullDistances) -> float:
    return distances.relative


def percent_outside(distances: HullDistances) -> float:
    return 100 * distances.outside


def hull(
    kind: str,
    value: Callable[[HullDistances], float],
    where: Callable[[LayerHull], dict[str, HullDistances] | None] = at_the_papers,
) -> Measure:
    def measure(found: Analysis, layer: int) -> float | None:
        return hull_value(found.hull.model, layer, kind, value, where)

    return measure


def hull_of_standard(value: Callable[[HullDistances], float]) -> Measure:
    def measure(found: Analysis, layer: int) -> float | None:
        assert found.hull.against is not None
        return hull_value(found.hull.against, layer, FIRST_ESTIMATE, value, at_the_papers)

    return measure


def hull_value(
    found: HullFinding,
    layer: int,
    kind: str,
    value: Callable[[HullDistances], float],
    where: Callable[[LayerHull], dict[str, HullDistances] | None],
) -> float | None:
    kinds = where(hull_layers(found)[layer])
    return None if kinds is None else value(kinds[kind])


def hull_layers(found: HullFinding) -> list[LayerHull]:
    """The distances by layer, which softmax layers in head space always have."""
    assert found.layers is not None, found.refused
    return found.layers


def tokenwise(found: Analysis, layer: int) -> float | None:
    return by_layer(found.entropy.model, 1)[layer].correlation_with_gate


def worth(found: Analysis, layer: int) -> float:
    return 1000 * next(one.mean for one in found.importance.layers if one.layer == layer)


def dynamics(m: int, value: Callable[[RoundDynamics], float]) -> Measure:
    return lambda found, layer: value(by_layer(found.dynamics, m)[layer])


FARTHER = "hull distance beyond head_dim, boosted over random (%)"
MEASURES: dict[str, Measure] = {
    "mean gate": gate(lambda g: g.mean),
    "spread of gates": gate(lambda g: g.spread),
    "gates above one half (%)": gate(lambda g: 100 * g.open),
    "loss without the correction (millinats)": worth,
    "entropy, standard": entropy_of_standard,
    "entropy, round 0": entropy(0),
    "entropy, round 1": entropy(1),
    "entropy ratio, round 0": ratio(0),
    "entropy ratio, round 1": ratio(1),
    "sharpness and gate, correlation over tokens": tokenwise,
    "hull distance": hull(BOOSTED_OUTPUT, mean),
    "hull distance, random correction": hull(RANDOM_CORRECTION, mean),
    "hull distance, twicing": hull(TWICING, mean),
    "hull distance, standard": hull_of_standard(mean),
    "relative hull distance": hull(BOOSTED_OUTPUT, relative),
    "relative hull distance, random correction": hull(RANDOM_CORRECTION, relative),
    "outside the hull (%)": hull(BOOSTED_OUTPUT, percent_outside),
    "outside the hull, random correction (%)": hull(RANDOM_CORRECTION, percent_outside),
    "outside the hull, twicing (%)": hull(TWICING, percent_outside),
    "outside the hull, standard (%)": hull_of_standard(percent_outside),
    "hull distance beyond head_dim": hull(BOOSTED_OUTPUT, mean, beyond_head_dim),
    "hull distance beyond head_dim, random correction": hull(RANDOM_CORRECTION, mean, beyond_head_dim),
    "outside the hull beyond head_dim (%)": hull(BOOSTED_OUTPUT, percent_outside, beyond_head_dim),
    "outside the hull beyond head_dim, random correction (%)": hull(
        RANDOM_CORRECTION, percent_outside, beyond_head_dim
    ),
    "norm of x - F over norm of x, round 0": dynamics(0, lambda d: d.left),
    "norm of x - F over norm of x, round 1": dynamics(1, lambda d: d.left),
    "cosine of correction and residual": dynamics(1, lambda d: d.cosine),
}


def analyses(preset: Preset, corpus: str) -> dict[int, Run]:
    return {seed: analysis_run(preset, corpus, BOOSTED, STANDARD, seed) for seed in preset.text.seeds}


def runs(preset: Preset) -> list[Run]:
    found = [run for corpus in preset.text.corpora for run in analyses(preset, corpus).values()]
    return [*text_runs(preset, {"boosted": BOOSTED, "standard": STANDARD}), *found]


def needed(preset: Preset) -> list[Run]:
    """The runs that hold all that is shown: the analyses."""
    return [run for corpus in preset.text.corpora for run in analyses(preset, corpus).values()]


def collect(preset: Preset, results: Results) -> Table:
    n_layers = recipe(preset).model.n_layers
    table = Table(TITLE, [f"layer {i}" for i in range(n_layers)], precision=3)
    table.scale = scale_of(preset)
    for corpus in preset.text.corpora:
        found = {seed: from_json(Analysis, results(run)) for seed, run in analyses(preset, corpus).items()}
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
        picked = "; ".join(f"seed {seed}: {a.importance.worth_boosting}" for seed, a in found.items())
        table.notes.append(
            f"{short(preset, corpus)}: {one.sequences} test sequences of {one.length} tokens, data {one.data}."
            f" Layers whose correction is missed, the interval over sequences above zero: {picked}."
        )
    table.notes.append(
        "Entropies in nats over all query positions; ratios in percent of the standard model's layer. Hull distances "
        "at the paper's positions (up to 64 visible values) unless said otherwise. Importance is the loss without the "
        "layer's correction minus the loss with it. The paper's averages are of one model."
    )
    return table


def cells(preset: Preset, found: Found, name: str, measure: Measure, n_layers: int) -> list[Cell | None]:
    paper = PAPER_ROWS.get(name, ()) if preset.text.recipe == FULL_SIZE else ()
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
    """Cut an interval to the range of its quantity, which a t interval of few seeds may leave."""
    for part, (low, high) in RANGES.items():
        if part in name:
            return replace(e, low=max(low, e.low), high=min(high, e.high))
    return e


def mean_entropy(found: Found, m: int) -> dict[int, float]:
    """Mean over layers of a round's entropy, by seed."""
    return {seed: average([one.mean for one in by_layer(a.entropy.model, m).values()]) for seed, a in found.items()}


def mean_entropy_of_standard(found: Found) -> dict[int, float]:
    return {
        seed: average([one.mean for one in by_layer(a.entropy.against or [], 0).values()]) for seed, a in found.items()
    }


def add_differences(table: Table, preset: Preset, corpus: str, found: Found) -> None:
    """Entropy of the rounds against the standard model's, over all layers; layer 1's gates against the others'."""
    standard, first, second = mean_entropy_of_standard(found), mean_entropy(found, 0), mean_entropy(found, 1)
    spread = {seed: {layer: one.spread for layer, one in by_layer(a.gates, 1).items()} for seed, a in found.items()}
    pairs: list[Pair] = [
        ("entropy, round 0 - standard", first, standard, PAPER.entropy_round_0 - PAPER.entropy_standard),
        ("entropy, round 1 - standard", second, standard, PAPER.entropy_round_1 - PAPER.entropy_standard),
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
    """Correlations across layers, and how often and how far outputs leave the hull."""
    related: dict[str, Callable[[Relations], float | None]] = {
        "correlation of sharpness and gate": lambda r: r.sharpness_and_gate,
        "rank correlation of hull distance and gate": lambda r: r.hull_distance_and_gate,
        "rank correlation of importance and gate": lambda r: r.importance_and_gate,
    }
    for quantity, value in related.items():
        values = [value(a.relations) for a in found.values()]
        known = [v for v in values if v is not None]
        if len(known) == len(values):
            table.quantities[quantity] = bounded(quantity, estimate(known))
            shown = interval(table.quantities[quantity], 2)
            table.notes.append(f"{quantity[0].upper()}{quantity[1:]} over layers: {shown}.")
    layers = [hull_layers(a.hull.model) for a in found.values()]
    outside = [100 * average([row.paper[BOOSTED_OUTPUT].outside for row in rows]) for rows in layers]
    name = "share of outputs outside the hull (%)"
    table.quantities[name] = bounded(name, estimate(outside))
    beyond = [[row.beyond_head_dim for row in rows if row.beyond_head_dim is not None] for rows in layers]
    if [len(rows) for rows in beyond] == [len(rows) for rows in layers]:  # equal norms: distances can be compared
        table.quantities[FARTHER] = estimate([average([farther(kinds) for kinds in rows]) for rows in beyond])


def farther(kinds: dict[str, HullDistances]) -> float:
    """How much farther from the hull the correction leads than a random one of the same norm, in percent."""
    return 100 * (kinds[BOOSTED_OUTPUT].mean / kinds[RANDOM_CORRECTION].mean - 1)


def average(values: list[float]) -> float:
    return sum(values) / len(values)
