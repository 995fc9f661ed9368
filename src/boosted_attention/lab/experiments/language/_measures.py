"""What Section 6.4 measures inside trained models, layer by layer, with the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
from boosted_attention.analysis.specialisation import KEY_KINDS
from boosted_attention.analysis.survey import by_layer
from boosted_attention.lab.judging.quantity import Quantity, difference


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
LAYERS = range(len(PAPER.mean_gate))
MEAN_GATE, SPREAD, HULL_DISTANCE = "mean gate", "spread of gates", "hull distance"
RATIO_0, RATIO_1 = "entropy ratio, round 0", "entropy ratio, round 1"
PAPER_ROWS = {
    MEAN_GATE: PAPER.mean_gate,
    SPREAD: PAPER.spread_of_gates,
    HULL_DISTANCE: PAPER.hull_distance,
    RATIO_0: PAPER.entropy_ratio_round_0,
    RATIO_1: PAPER.entropy_ratio_round_1,
}
BY_LAYER = {
    (row, layer): Quantity(f"{row} | layer {layer}", paper)
    for row, papers in PAPER_ROWS.items()
    for layer, paper in enumerate(papers)
}
ENTROPY_STANDARD = Quantity("entropy | standard", PAPER.entropy_standard)
ENTROPY_0 = Quantity("entropy | round 0", PAPER.entropy_round_0)
ENTROPY_1 = Quantity("entropy | round 1", PAPER.entropy_round_1)
ROUND_0_OVER_STANDARD = difference(ENTROPY_0, ENTROPY_STANDARD, "entropy, round 0 - standard")
ROUND_1_OVER_STANDARD = difference(ENTROPY_1, ENTROPY_STANDARD, "entropy, round 1 - standard")
LAYER_1_SPREAD = Quantity("spread of gates, layer 1 - largest of the others")
LAYER_1_GATE = Quantity("mean gate, layer 1 - largest of the others")
LAYER_0_GATE = Quantity("mean gate, layer 0 - smallest of the others")
OF_SEVERAL_LAYERS = (LAYER_1_SPREAD, LAYER_1_GATE, LAYER_0_GATE)
FITS = Quantity("norm of x - F over norm of x, round 1 - round 0, mean over layers")
GAIN = Quantity("standard's loss - boosted's, on the same tokens (millinats)")
BETTER = Quantity("share of tokens that boosted predicts better than standard - one half (%)")
OUTSIDE = Quantity("share of outputs outside the hull (%)", 100.0)
FARTHER = Quantity("hull distance beyond head_dim, boosted over random (%)")
SHARPNESS_AND_GATE = Quantity("correlation of sharpness and gate")
HULL_AND_GATE = Quantity("rank correlation of hull distance and gate")
IMPORTANCE_AND_GATE = Quantity("rank correlation of importance and gate")
RELATED: dict[Quantity, Callable[[Relations], float | None]] = {
    SHARPNESS_AND_GATE: lambda r: r.sharpness_and_gate,
    HULL_AND_GATE: lambda r: r.hull_distance_and_gate,
    IMPORTANCE_AND_GATE: lambda r: r.importance_and_gate,
}

QUANTITIES = (
    *BY_LAYER.values(),
    ENTROPY_STANDARD,
    ENTROPY_0,
    ENTROPY_1,
    ROUND_0_OVER_STANDARD,
    ROUND_1_OVER_STANDARD,
    *OF_SEVERAL_LAYERS,
    FITS,
    GAIN,
    BETTER,
    OUTSIDE,
    FARTHER,
    *RELATED,
)

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


def attended(kind: str, m: int) -> Measure:
    """Percent of a round's attention that falls on a kind of keys."""
    return lambda found, layer: 100 * by_layer(found.specialisation.model.rows, m)[layer].mean[kind]


def attended_by_standard(kind: str) -> Measure:
    def measure(found: Analysis, layer: int) -> float:
        assert found.specialisation.against is not None
        return 100 * by_layer(found.specialisation.against.rows, 0)[layer].mean[kind]

    return measure


def of_kind(kind: str) -> dict[str, Measure]:
    """The rows about one kind of keys."""
    rounds = {f"attention to {kind}, round {m} (%)": attended(kind, m) for m in (0, 1)}
    return {f"attention to {kind}, standard (%)": attended_by_standard(kind), **rounds}


MEASURES: dict[str, Measure] = {
    MEAN_GATE: gate(lambda g: g.mean),
    SPREAD: gate(lambda g: g.spread),
    "gates above one half (%)": gate(lambda g: 100 * g.open),
    "loss without the correction (millinats)": worth,
    "entropy, standard": entropy_of_standard,
    "entropy, round 0": entropy(0),
    "entropy, round 1": entropy(1),
    RATIO_0: ratio(0),
    RATIO_1: ratio(1),
    "sharpness and gate, correlation over tokens": tokenwise,
    HULL_DISTANCE: hull(BOOSTED_OUTPUT, mean),
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
    **{name: measure for kind in KEY_KINDS for name, measure in of_kind(kind).items()},
}
