"""Tokens on which one model gains or loses most against another, and what each looked at: losses beside gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from boosted_attention.analysis.survey import Progress, logits_of, losses_by_row
from boosted_attention.attention.trace import capture
from boosted_attention.statistics import estimate

CONTEXT = 32  # tokens shown before the predicted one
SHOWN = 5  # examples of each kind, and predictions of each
FEWEST = 4  # tokens of context before an example counts
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@torch.no_grad()
def corrections(
    model: nn.Module,
    against: nn.Module,
    rows: Tensor,
    vocabulary: Sequence[str],
    *,
    progress: Progress = lambda fraction: None,
) -> dict[str, Any]:
    """Per token of rows (n, T + 1): loss of ``against`` minus loss of ``model``; a gain is positive."""
    mine = losses_by_row(model, rows, lambda f: progress(f / 2))
    theirs = losses_by_row(against, rows, lambda f: progress((1 + f) / 2))
    losses = torch.stack([mine, theirs], dim=-1)  # (n, T, 2)
    gain = (losses[..., 1] - losses[..., 0]).double()  # (n, T)
    per_row = estimate(gain.mean(dim=1).tolist())
    chosen = {"gains": extremes(gain), "losses": extremes(-gain)}
    return {
        "tokens": gain.numel(),
        "gain": {key: asdict(per_row)[key] for key in ("mean", "low", "high", "n")},
        "share_better": float((gain > 0).double().mean()),
        "quantiles": {str(q): float(torch.quantile(gain, q)) for q in QUANTILES},
        **{
            kind: [example(model, against, rows[n], t, losses[n, t], vocabulary) for n, t in places]
            for kind, places in chosen.items()
        },
    }


def extremes(gain: Tensor) -> list[tuple[int, int]]:
    """(row, position) of the largest gains, one per row."""
    usable = gain[:, min(FEWEST, gain.shape[1] - 1) :]
    best, where = usable.max(dim=1)
    offset = gain.shape[1] - usable.shape[1]
    return [(n, int(where[n]) + offset) for n in best.argsort(descending=True, stable=True).tolist()[:SHOWN]]


def example(
    model: nn.Module, against: nn.Module, row: Tensor, t: int, losses: Tensor, vocabulary: Sequence[str]
) -> dict[str, Any]:
    """One prediction: context, target, what both predicted, and what both attended to."""
    start = max(0, t + 1 - CONTEXT)
    return {
        "context": [vocabulary[i] for i in row[start : t + 1].tolist()],
        "target": vocabulary[int(row[t + 1])],
        "model": {"loss": float(losses[0]), **look(model, row, t, start, vocabulary)},
        "against": {"loss": float(losses[1]), **look(against, row, t, start, vocabulary)},
    }


def look(model: nn.Module, row: Tensor, t: int, start: int, vocabulary: Sequence[str]) -> dict[str, Any]:
    device = next(model.parameters()).device
    with capture(model) as traces:
        logits = logits_of(model, row[None, : t + 1].to(device))[0, -1]
    attention = [
        [r.weights[0, :, -1].float().mean(dim=0)[start:].tolist() for r in trace.rounds]  # over heads
        for trace in traces.values()
    ]
    return {"top": top_predictions(logits, vocabulary), "attention": attention}  # by layer, then round


def top_predictions(logits: Tensor, vocabulary: Sequence[str]) -> list[list[Any]]:
    """The likeliest tokens with their probabilities."""
    p, index = logits.float().softmax(dim=-1).topk(min(SHOWN, logits.shape[-1]))
    named = (vocabulary[i] if i < len(vocabulary) else f"<{i}>" for i in index.tolist())  # a model may have spare ids
    return [[name, value] for name, value in zip(named, p.tolist(), strict=True)]
