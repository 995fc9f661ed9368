"""What a layer's correction is worth: the change in loss when it is switched off. The size of a gate is not that.

Switching off what a trained model relies on says what the model uses, not how well it would do without: a model
trained without the correction would have learned something else in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from boosted_attention.analysis.interval import Interval, interval_of
from boosted_attention.analysis.survey import losses_by_row
from boosted_attention.attention.switch import disable_rounds
from boosted_attention.attention.trace import traced_layers
from boosted_attention.documentation import documented
from boosted_attention.progress import Progress


@documented
@dataclass(frozen=True, kw_only=True)
class LayerImportance(Interval):
    """Change in loss, in nats per token, when one layer's corrections are switched off."""

    layer: int  # Index of the layer whose corrections are switched off, from 0.


@documented
@dataclass(frozen=True, kw_only=True)
class Importance:
    """What the corrections of a model are worth; intervals are over sequences, paired."""

    loss: float  # Loss of the model as it is, in nats per token.
    all: Interval | None  # Change in loss without any correction; None for a model that has none.
    layers: list[LayerImportance]  # Change in loss without one layer's corrections, for each layer that has any.
    worth_boosting: list[int]  # Indices of the layers whose whole interval is above zero.


@torch.no_grad()
def importance(model: nn.Module, rows: Tensor, *, progress: Progress = lambda fraction: None) -> Importance:
    """Measure how the loss changes without all corrections, and without each layer's.

    Args:
        model: any module that contains attention layers of boosted_attention, called with token ids (B, T).
        rows: sequences (n, T + 1).
        progress: called with the fraction done.
    """
    boosted = [i for i, layer in enumerate(traced_layers(model).values()) if layer.n_rounds > 1]
    total = (len(boosted) + 2) if boosted else 1
    done = 0

    def losses() -> Tensor:
        nonlocal done
        start, done = done, done + 1
        return losses_by_row(model, rows, lambda f: progress((start + f) / total)).double().mean(dim=1)  # (n,)

    def change(**which: Any) -> Interval:
        with disable_rounds(model, **which):
            return interval_of((losses() - base).tolist())

    base = losses()
    layers = [LayerImportance(layer=i, **vars(change(layers=i))) for i in boosted]
    return Importance(
        loss=float(base.mean()),
        all=change() if boosted else None,
        layers=layers,
        worth_boosting=[found.layer for found in layers if found.n > 1 and found.low > 0],
    )


def most_important(found: Importance, count: int) -> list[int]:
    """Choose the layers whose corrections are missed most, in the form ``boosted_layers`` and ``boost`` take.

    Args:
        found: what ``importance`` measured.
        count: layers to choose.
    """
    order = sorted(found.layers, key=lambda one: -one.mean)
    return sorted(one.layer for one in order[:count])
