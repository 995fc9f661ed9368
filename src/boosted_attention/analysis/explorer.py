"""Everything about one text, token by token, for the round explorer of the report.

Attention is averaged over heads and packed: for each layer and map, the causal triangle row by row (1 + 2 + ... + T
numbers), as unsigned 16-bit fractions of 1, little-endian, in base64.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from boosted_attention.analysis.corrections import top_predictions
from boosted_attention.analysis.survey import logits_of
from boosted_attention.attention.trace import capture

LONGEST = 128  # tokens


@torch.no_grad()
def explore(model: nn.Module, against: nn.Module | None, row: Tensor, vocabulary: Sequence[str]) -> dict[str, Any]:
    """Tokens of a row (T + 1,), and per token what the model (and another) attended to and predicted."""
    row = row[: LONGEST + 1]
    return {
        "tokens": [vocabulary[i] for i in row.tolist()],
        "model": one(model, row, vocabulary),
        "against": None if against is None else one(against, row, vocabulary),
    }


def one(model: nn.Module, row: Tensor, vocabulary: Sequence[str]) -> dict[str, Any]:
    device = next(model.parameters()).device
    with capture(model) as traces:
        logits = logits_of(model, row[None, :-1].to(device))[0].float().cpu()  # (T, V)
    losses = nn.functional.cross_entropy(logits, row[1:], reduction="none")
    layers = []
    for trace in traces.values():
        rounds = []
        for r in trace.rounds:
            gate = None if r.gate is None else r.gate[0].mean(dim=-1)  # (T,)
            rounds.append(
                {
                    "attention": pack(r.weights[0].float().mean(dim=0)),
                    "residual": r.residual[0].norm(dim=-1).tolist(),
                    "gate": None if gate is None else gate.tolist(),
                }
            )
        layers.append(rounds)
    return {"loss": losses.tolist(), "top": [top_predictions(at, vocabulary) for at in logits], "layers": layers}


def pack(weights: Tensor) -> str:
    """(T, T) -> base64 of the lower triangle."""
    triangle = weights.cpu().numpy()[np.tril_indices(weights.shape[0])]
    whole = np.rint(np.clip(triangle, 0.0, 1.0) * 65_535).astype("<u2")
    return base64.b64encode(whole.tobytes()).decode()
