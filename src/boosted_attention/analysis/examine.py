"""All analyses of one model, beside another trained on the same text if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from boosted_attention.analysis.corrections import corrections
from boosted_attention.analysis.dynamics import DynamicsStudy
from boosted_attention.analysis.entropy import EntropyStudy, by_layer, correlation, rank_correlation, ratios
from boosted_attention.analysis.explorer import explore
from boosted_attention.analysis.gates import GateStudy
from boosted_attention.analysis.hull import PAIRS, hull_study
from boosted_attention.analysis.importance import importance
from boosted_attention.analysis.specialisation import SpecialisationStudy
from boosted_attention.analysis.survey import Progress, rounded, survey
from boosted_attention.attention.trace import traced_layers
from boosted_attention.validation import InputError

# Roughly what part of the time each takes.
SHARES = {"survey": 0.2, "against": 0.1, "importance": 0.1, "corrections": 0.1, "hull": 0.35, "hull against": 0.15}


def examine(
    model: nn.Module,
    rows: Tensor,
    vocabulary: Sequence[str],
    *,
    against: nn.Module | None = None,
    pairs: int = PAIRS,
    with_explorer: bool = True,
    progress: Progress = lambda fraction: None,
) -> dict[str, Any]:
    """What the rounds of ``model`` do on rows (n, T + 1), as JSON values.

    Args:
        vocabulary: the text of every token id.
        against: a model to compare with, usually standard attention trained on the same data.
        pairs: (position, head) pairs per layer for the hull distance.
        with_explorer: also everything about the first row, token by token.
    """
    layers = traced_layers(model)
    length = rows.shape[1] - 1
    done = 0.0

    def part(name: str) -> Progress:
        nonlocal done
        start, share = done, SHARES[name]
        done += share
        return lambda fraction: progress(start + share * fraction)

    punctuation = torch.tensor([is_punctuation(text) for text in vocabulary])
    gates, entropy = GateStudy(len(vocabulary)), EntropyStudy(length)
    dynamics, special = DynamicsStudy(), SpecialisationStudy(punctuation)
    survey(model, rows, [gates, entropy, dynamics, special], progress=part("survey"))
    found: dict[str, Any] = {
        "layers": list(layers),
        "rounds": [layer.n_rounds for layer in layers.values()],
        "sequences": len(rows),
        "length": length,
        "gates": named_tokens(gates.result(), vocabulary),
        "entropy": {"model": entropy.result(), "against": None, "ratios": None},
        "dynamics": dynamics.result(),
        "specialisation": {"model": special.result(), "against": None},
        "importance": importance(model, rows, progress=part("importance")),
        "corrections": None,
        "hull": {"model": measured_hull(model, rows, pairs, part("hull")), "against": None},
        "explorer": explore(model, against, rows[0], vocabulary) if with_explorer else None,
    }
    if against is not None:
        theirs, attended = EntropyStudy(length), SpecialisationStudy(punctuation)
        survey(against, rows, [theirs, attended], progress=part("against"))
        found["entropy"]["against"] = theirs.result()
        found["entropy"]["ratios"] = ratios(found["entropy"]["model"], theirs.result())
        found["specialisation"]["against"] = attended.result()
        found["corrections"] = corrections(model, against, rows, vocabulary, progress=part("corrections"))
        found["hull"]["against"] = measured_hull(against, rows, pairs, part("hull against"))
    found["relations"] = relations(found)
    progress(1.0)
    return rounded(found)


def measured_hull(model: nn.Module, rows: Tensor, pairs: int, progress: Progress) -> dict[str, Any]:
    """The hull study, or why there is none."""
    try:
        return {"layers": hull_study(model, rows, pairs=pairs, progress=progress), "refused": None}
    except InputError as error:
        return {"layers": None, "refused": str(error)}


def relations(found: dict[str, Any]) -> dict[str, float | None]:
    """Across layers: does a sharper correction have a wider gate, a wider gate a farther output, or more importance?

    Sharpness is how much less entropy round 1 has than the other model's layer, so it needs one. With a handful of
    layers all of these are weak evidence: four points rank alike by chance once in 24 times.
    """
    gate = by_layer(found["gates"], 1)
    related: dict[str, float | None] = {}
    sharpness = {row["layer"]: -row["percent"] for row in found["entropy"]["ratios"] or [] if row["round"] == 1}
    related["sharpness and gate"] = across(sharpness, gate, correlation)
    hull = found["hull"]["model"]["layers"] or []
    distance = {row["layer"]: row["paper"]["boosted"]["mean"] for row in hull if "boosted" in row["paper"]}
    related["hull distance and gate, ranks"] = across(distance, gate, rank_correlation)
    importance_of = {row["layer"]: row["mean"] for row in found["importance"]["layers"]}
    related["importance and gate, ranks"] = across(importance_of, gate, rank_correlation)
    return related


def across(a: dict[int, float], b: dict[int, float], measure: Any) -> float | None:
    both = sorted(a.keys() & b.keys())
    return measure([a[i] for i in both], [b[i] for i in both]) if len(both) > 2 else None  # two points say nothing


def named_tokens(gates: list[dict[str, Any]], vocabulary: Sequence[str]) -> list[dict[str, Any]]:
    for row in gates:
        for key in ("widest_tokens", "narrowest_tokens"):
            row[key] = [[vocabulary[i], mean, count] for i, mean, count in row[key]]
    return gates


def is_punctuation(text: str) -> bool:
    """Signs and brackets, not words, numbers, blanks or torn characters."""
    stripped = text.strip()
    return bool(stripped) and not any(c.isalnum() or c == "\ufffd" for c in stripped)
