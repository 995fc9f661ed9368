"""Everything about one text, token by token, for the round explorer of the report.

Attention is averaged over heads and packed: for each layer and map, the causal triangle row by row (1 + 2 + ... + T
numbers), as unsigned 16-bit fractions of 1, little-endian, in base64.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from boosted_attention.analysis.predictions import Prediction, texts_of, top_predictions
from boosted_attention.analysis.survey import logits_of
from boosted_attention.attention.trace import RoundTrace, capture
from boosted_attention.documentation import documented

EXPLORED_TOKENS = 128


@dataclass(frozen=True, kw_only=True)
class ExploredRound:
    """One round of one layer, token by token."""

    attention: str | None  # packed; None for a round without an attention map
    residual: list[float]  # norm of what the round saw
    gate: list[float] | None  # mean over dimensions; None in round 0


@dataclass(frozen=True, kw_only=True)
class ExploredModel:
    """One model on the text, token by token."""

    loss: list[float]
    top: list[list[Prediction]]
    layers: list[list[ExploredRound]]  # by layer and round


@documented
@dataclass(frozen=True, kw_only=True)
class Explorer:
    """A text, and what one or two models make of it."""

    tokens: list[str]  # Texts of the T + 1 tokens: T are attended from, the last is only predicted.
    model: ExploredModel  # Losses, predictions and rounds of the model.
    against: ExploredModel | None  # Losses, predictions and rounds of the model beside it; None where there is none.


@torch.no_grad()
def explore(model: nn.Module, against: nn.Module | None, row: Tensor, vocabulary: Sequence[str]) -> Explorer:
    """Look at the start of one sequence token by token.

    Args:
        model: the model to look inside.
        against: a model to show beside it.
        row: token ids (T + 1,), of which EXPLORED_TOKENS are attended from.
        vocabulary: the text of every token id.
    """
    row = row[: EXPLORED_TOKENS + 1]
    return Explorer(
        tokens=texts_of(row, vocabulary),
        model=explored(model, row, vocabulary),
        against=None if against is None else explored(against, row, vocabulary),
    )


def explored(model: nn.Module, row: Tensor, vocabulary: Sequence[str]) -> ExploredModel:
    """Describe one model on a row (T + 1,)."""
    device = next(model.parameters()).device
    with capture(model) as traces:
        logits = logits_of(model, row[None, :-1].to(device))[0].float().cpu()  # (T, V)
    return ExploredModel(
        loss=nn.functional.cross_entropy(logits, row[1:], reduction="none").tolist(),
        top=[top_predictions(at, vocabulary) for at in logits],
        layers=[[explored_round(r) for r in trace.rounds] for trace in traces.values()],
    )


def explored_round(r: RoundTrace) -> ExploredRound:
    """Describe the first sequence of a round's trace."""
    gate = r.gate
    return ExploredRound(
        attention=pack(r.weights[0].float().mean(dim=0)) if r.has_map else None,
        residual=r.residual[0].norm(dim=-1).tolist(),
        gate=None if gate is None else gate[0].mean(dim=-1).tolist(),
    )


def pack(weights: Tensor) -> str:
    """Encode the lower triangle of (T, T) weights as base64."""
    triangle = weights.cpu().numpy()[np.tril_indices(weights.shape[0])]
    whole = np.rint(np.clip(triangle, 0.0, 1.0) * 65_535).astype("<u2")
    return base64.b64encode(whole.tobytes()).decode()
