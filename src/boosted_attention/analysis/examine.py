"""All analyses of one model, beside another trained on the same text if there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from boosted_attention.analysis.corrections import Corrections, corrections
from boosted_attention.analysis.dynamics import DynamicsAtStep, DynamicsStudy, RoundDynamics
from boosted_attention.analysis.entropy import (
    EntropyComparison,
    EntropyRatio,
    EntropyStudy,
    correlation,
    rank_correlation,
    ratios,
)
from boosted_attention.analysis.explorer import Explorer, explore
from boosted_attention.analysis.gates import GateFinding, GateStudy
from boosted_attention.analysis.hull import BOOSTED_OUTPUT, PAIRS, HullComparison, HullFinding, hull_study
from boosted_attention.analysis.importance import Importance, importance
from boosted_attention.analysis.specialisation import SpecialisationComparison, SpecialisationStudy, is_punctuation
from boosted_attention.analysis.survey import by_layer, rounded, survey
from boosted_attention.attention.trace import traced_layers
from boosted_attention.documentation import documented
from boosted_attention.progress import Progress
from boosted_attention.records import json_key
from boosted_attention.validation import InputError

# Roughly what part of the time each takes.
SHARES = {"survey": 0.2, "against": 0.1, "importance": 0.1, "corrections": 0.1, "hull": 0.35, "hull against": 0.15}


@documented
@dataclass(frozen=True, kw_only=True)
class Relations:
    """Correlations across layers; None with fewer than three layers, or where a quantity does not vary.

    With a handful of layers all of these are weak evidence: four points rank alike by chance once in 24 times.
    """

    sharpness_and_gate: float | None = field(metadata=json_key("sharpness and gate"))
    """Correlation of sharpness with the mean gate of round 1. Sharpness is how much less entropy round 1 has than
    the other model's layer, so it needs another model."""
    hull_distance_and_gate: float | None = field(metadata=json_key("hull distance and gate, ranks"))
    """Rank correlation of the boosted output's mean hull distance with the mean gate of round 1."""
    importance_and_gate: float | None = field(metadata=json_key("importance and gate, ranks"))
    """Rank correlation of the layer's importance with the mean gate of round 1."""


@documented
@dataclass(frozen=True, kw_only=True)
class Names:
    """What a model, and the one it is compared with, are called in figures and texts; "" where there is none."""

    model: str  # Name of the model.
    against: str  # Name of the model it is compared with; "" where there is none.


@documented
@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What the rounds of a model do. ``records.to_json`` and ``records.from_json`` store it and read it back."""

    layers: list[str]  # Module names of the attention layers.
    rounds: list[int]  # Number of rounds of each layer.
    sequences: int  # Number of sequences analysed.
    length: int  # Tokens that each sequence attends from.
    gates: list[GateFinding]  # Gates of every layer and correction.
    entropy: EntropyComparison  # Entropy of the attention, by layer and round.
    dynamics: list[RoundDynamics]  # Distance to x and direction of the correction, by layer and round.
    specialisation: SpecialisationComparison  # Kinds of keys attended to, by layer and round.
    importance: Importance  # Change in loss without the corrections.
    corrections: Corrections | None  # Gains over the other model, token by token; None without a model to compare with.
    hull: HullComparison  # Distances of outputs from the hull of the values, by layer.
    explorer: Explorer | None  # First sequence, token by token; None where it was not asked for.
    relations: Relations  # Correlations of these quantities across layers.
    training: list[DynamicsAtStep] | None = None  # Dynamics during training; None unless the caller adds them.
    data: str | None = None  # Fingerprint of the text; None unless the caller adds it.
    about: dict[str, str] | None = None  # Description of what was analysed, by heading; None unless the caller adds it.
    names: Names | None = None  # Names of the models; None unless the caller adds them.
    retrained: float | None = None  # Largest change of a test loss by training anew; None unless the caller adds it.


def examine(
    model: nn.Module,
    rows: Tensor,
    vocabulary: Sequence[str],
    *,
    against: nn.Module | None = None,
    pairs: int = PAIRS,
    with_explorer: bool = True,
    progress: Progress = lambda fraction: None,
) -> Analysis:
    """Find out what the rounds of a model do on some sequences; numbers have six significant digits.

    Args:
        model: any module that contains attention layers of boosted_attention, called with token ids (B, T).
        rows: sequences (n, T + 1).
        vocabulary: the text of every token id.
        against: a model to compare with, usually standard attention trained on the same data.
        pairs: (position, head) pairs per layer for the hull distance.
        with_explorer: also describe the first row token by token.
        progress: called with the fraction done.
    """
    layers, length = traced_layers(model), rows.shape[1] - 1
    part = parts_of(progress)
    punctuation = torch.tensor([is_punctuation(text) for text in vocabulary])
    gates, entropy = GateStudy(vocabulary), EntropyStudy(length)
    dynamics, special = DynamicsStudy(), SpecialisationStudy(punctuation)
    survey(model, rows, [gates, entropy, dynamics, special], progress=part("survey"))
    mine, missed = entropy.result(), importance(model, rows, progress=part("importance"))
    hull = measured_hull(model, rows, pairs, part("hull"))
    explorer = explore(model, against, rows[0], vocabulary) if with_explorer else None
    theirs = attended = compared = gained = other_hull = None
    if against is not None:
        other_entropy, other_special = EntropyStudy(length), SpecialisationStudy(punctuation)
        survey(against, rows, [other_entropy, other_special], progress=part("against"))
        theirs, attended = other_entropy.result(), other_special.result()
        compared = ratios(mine, theirs)
        gained = corrections(model, against, rows, vocabulary, progress=part("corrections"))
        other_hull = measured_hull(against, rows, pairs, part("hull against"))
    found = Analysis(
        layers=list(layers),
        rounds=[layer.n_rounds for layer in layers.values()],
        sequences=len(rows),
        length=length,
        gates=gates.result(),
        entropy=EntropyComparison(model=mine, against=theirs, ratios=compared),
        dynamics=dynamics.result(),
        specialisation=SpecialisationComparison(model=special.result(), against=attended),
        importance=missed,
        corrections=gained,
        hull=HullComparison(model=hull, against=other_hull),
        explorer=explorer,
        relations=relations(gates.result(), compared or [], hull, missed),
    )
    progress(1.0)
    return rounded(found)


def parts_of(progress: Progress) -> Callable[[str], Progress]:
    """Divide a progress into the parts named in SHARES, taken one after the other."""
    done = 0.0

    def part(name: str) -> Progress:
        nonlocal done
        start, share = done, SHARES[name]
        done += share
        return lambda fraction: progress(start + share * fraction)

    return part


def measured_hull(model: nn.Module, rows: Tensor, pairs: int, progress: Progress) -> HullFinding:
    """The hull study, or why there is none."""
    try:
        return HullFinding(layers=hull_study(model, rows, pairs=pairs, progress=progress), refused=None)
    except InputError as error:
        return HullFinding(layers=None, refused=str(error))


def relations(
    gates: Sequence[GateFinding], compared: Sequence[EntropyRatio], hull: HullFinding, missed: Importance
) -> Relations:
    """Ask across layers: has a sharper correction a wider gate, a wider gate a farther output, or more importance?"""
    gate = {layer: found.mean for layer, found in by_layer(gates, 1).items()}
    sharpness = {layer: -ratio.percent for layer, ratio in by_layer(compared, 1).items()}
    distance = {row.layer: row.paper[BOOSTED_OUTPUT].mean for row in hull.layers or [] if BOOSTED_OUTPUT in row.paper}
    worth = {row.layer: row.mean for row in missed.layers}
    return Relations(
        sharpness_and_gate=across(sharpness, gate, correlation),
        hull_distance_and_gate=across(distance, gate, rank_correlation),
        importance_and_gate=across(worth, gate, rank_correlation),
    )


def across(
    a: Mapping[int, float], b: Mapping[int, float], measure: Callable[[list[float], list[float]], float | None]
) -> float | None:
    """Relate two quantities over the layers that have both; two points would say nothing."""
    both = sorted(a.keys() & b.keys())
    return measure([a[i] for i in both], [b[i] for i in both]) if len(both) > 2 else None
