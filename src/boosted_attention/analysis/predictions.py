"""Tokens as texts, and the likeliest next tokens of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

PREDICTIONS_SHOWN = 5


class Prediction(NamedTuple):
    """A token that a model predicts, and its probability."""

    token: str
    probability: float


def top_predictions(logits: Tensor, vocabulary: Sequence[str]) -> list[Prediction]:
    """The likeliest tokens of logits (V,), with their probabilities.

    Args:
        logits: of one position, (V,).
        vocabulary: the text of every token id; a model may have spare ids beyond it.
    """
    p, index = logits.float().softmax(dim=-1).topk(min(PREDICTIONS_SHOWN, logits.shape[-1]))
    return [
        Prediction(vocabulary[int(i)] if i < len(vocabulary) else f"<{i}>", value)
        for i, value in zip(index.tolist(), p.tolist(), strict=True)
    ]


def texts_of(ids: Tensor, vocabulary: Sequence[str]) -> list[str]:
    """The texts of token ids (T,)."""
    return [vocabulary[int(i)] for i in ids.tolist()]
