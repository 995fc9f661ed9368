"""Tokens on which one model gains or loses most against another, and what each attended to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from boosted_attention.analysis.interval import Interval, interval_of
from boosted_attention.analysis.predictions import Prediction, texts_of, top_predictions
from boosted_attention.analysis.survey import logits_of, losses_by_row
from boosted_attention.attention.trace import capture
from boosted_attention.documentation import documented
from boosted_attention.progress import Progress

CONTEXT = 32  # tokens shown before the predicted one
EXAMPLES_SHOWN = 5  # of gains, and of losses
FEWEST_BEFORE = 4  # tokens of context before a prediction may be an example
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True)
class ExamplePrediction:
    """What one model predicted at one place, and what it attended to there."""

    loss: float
    top: list[Prediction]
    attention: list[list[list[float]]]  # by layer and round: weights over the context, averaged over heads; [] without


@dataclass(frozen=True, kw_only=True)
class Example:
    """One predicted token, with the predictions of both models."""

    context: list[str]
    target: str
    model: ExamplePrediction
    against: ExamplePrediction


@documented
@dataclass(frozen=True, kw_only=True)
class Corrections:
    """Gains of one model over another, in nats per token: the other's loss minus its own."""

    tokens: int  # Number of tokens compared.
    gain: Interval  # Mean gain in nats per token, with its interval over sequences.
    share_better: float  # Share of tokens that the model predicts better than the other.
    quantiles: dict[str, float]  # Quantiles of the gain over tokens, by level such as "0.05".
    gains: list[Example]  # Examples with the largest gains, one per sequence.
    losses: list[Example]  # Examples with the largest losses, one per sequence.


@torch.no_grad()
def corrections(
    model: nn.Module,
    against: nn.Module,
    rows: Tensor,
    vocabulary: Sequence[str],
    *,
    progress: Progress = lambda fraction: None,
) -> Corrections:
    """Compare two models token by token.

    Args:
        model: the model whose gains are positive.
        against: the model it is compared with.
        rows: sequences (n, T + 1).
        vocabulary: the text of every token id.
        progress: called with the fraction done.
    """
    mine = losses_by_row(model, rows, lambda f: progress(f / 2))
    theirs = losses_by_row(against, rows, lambda f: progress((1 + f) / 2))
    losses = torch.stack([mine, theirs], dim=-1)  # (n, T, 2)
    gain = (losses[..., 1] - losses[..., 0]).double()  # (n, T)

    def examples(places: list[tuple[int, int]]) -> list[Example]:
        return [example(model, against, rows[n], t, losses[n, t], vocabulary) for n, t in places]

    return Corrections(
        tokens=gain.numel(),
        gain=interval_of(gain.mean(dim=1).tolist()),
        share_better=float((gain > 0).double().mean()),
        quantiles={str(q): float(torch.quantile(gain, q)) for q in QUANTILES},
        gains=examples(extremes(gain)),
        losses=examples(extremes(-gain)),
    )


def extremes(gain: Tensor) -> list[tuple[int, int]]:
    """(row, position) of the largest gains, one per row."""
    usable = gain[:, min(FEWEST_BEFORE, gain.shape[1] - 1) :]
    best, where = usable.max(dim=1)
    offset = gain.shape[1] - usable.shape[1]
    return [(n, int(where[n]) + offset) for n in best.argsort(descending=True, stable=True).tolist()[:EXAMPLES_SHOWN]]


def example(
    model: nn.Module, against: nn.Module, row: Tensor, t: int, losses: Tensor, vocabulary: Sequence[str]
) -> Example:
    """Describe the prediction after position ``t`` of a row; ``losses`` (2,) are the model's and the other's."""
    start = max(0, t + 1 - CONTEXT)
    return Example(
        context=texts_of(row[start : t + 1], vocabulary),
        target=vocabulary[int(row[t + 1])],
        model=predicted(model, row, t, start, float(losses[0]), vocabulary),
        against=predicted(against, row, t, start, float(losses[1]), vocabulary),
    )


def predicted(
    model: nn.Module, row: Tensor, t: int, start: int, loss: float, vocabulary: Sequence[str]
) -> ExamplePrediction:
    """Describe what a model predicts after position ``t``, with its attention from there to ``start`` and later."""
    device = next(model.parameters()).device
    with capture(model) as traces:
        logits = logits_of(model, row[None, : t + 1].to(device))[0, -1]
    attention = [
        [r.weights[0, :, -1].float().mean(dim=0)[start:].tolist() if r.has_map else [] for r in trace.rounds]
        for trace in traces.values()
    ]
    return ExamplePrediction(loss=loss, top=top_predictions(logits, vocabulary), attention=attention)
