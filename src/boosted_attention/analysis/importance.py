"""What a layer's correction is worth: the change in loss when it is switched off. The size of a gate is not that.

Switching off what a trained model relies on says what the model uses, not how well it would do without: a model
trained without the correction would have learned something else in its place.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from boosted_attention.analysis.survey import Progress, losses_by_row
from boosted_attention.attention.switch import disable_rounds
from boosted_attention.attention.trace import traced_layers
from boosted_attention.statistics import estimate


@torch.no_grad()
def importance(model: nn.Module, rows: Tensor, *, progress: Progress = lambda fraction: None) -> dict[str, Any]:
    """Loss on rows (n, T + 1), and how it changes without all corrections and without each layer's.

    Intervals are over sequences, paired; a layer is worth boosting where the whole interval is above zero.
    """
    boosted = [i for i, layer in enumerate(traced_layers(model).values()) if layer.n_rounds > 1]
    total = (len(boosted) + 2) if boosted else 1
    done = 0

    def losses() -> Tensor:
        nonlocal done
        start, done = done, done + 1
        return losses_by_row(model, rows, lambda f: progress((start + f) / total)).double().mean(dim=1)  # (n,)

    def change(**which: Any) -> dict[str, Any]:
        with disable_rounds(model, **which):
            found = estimate((losses() - base).tolist())
        return {key: asdict(found)[key] for key in ("mean", "low", "high", "n")}

    base = losses()
    if not boosted:
        return {"loss": float(base.mean()), "all": None, "layers": [], "worth_boosting": []}
    layers = [{"layer": i, **change(layers=i)} for i in boosted]
    worth = [row["layer"] for row in layers if row["n"] > 1 and row["low"] > 0]
    return {"loss": float(base.mean()), "all": change(), "layers": layers, "worth_boosting": worth}


def most_important(found: dict[str, Any], count: int) -> list[int]:
    """The layers whose corrections are missed most, as ``boosted_layers`` takes them."""
    order = sorted(found["layers"], key=lambda row: -row["mean"])
    return sorted(row["layer"] for row in order[:count])
