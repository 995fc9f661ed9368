"""Does a round do what boosting says? How far the estimate is from x after each round, and which way it was moved.

    ||x - F_m|| / ||x||   after round m;    cos(c_m, r_m)   the correction against the residual it saw

Nothing in training fits a round to its residual (only the model's loss does), so neither needs to fall or to be
positive; in head space the output projection comes after F, and x - F compares before and after of different bases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from boosted_attention.analysis.survey import Mean
from boosted_attention.attention.trace import LayerTrace, capture

LONGEST = 128  # tokens a probe reads of each row


class DynamicsStudy:
    def __init__(self) -> None:
        self.found: dict[tuple[int, int], Mean] = {}

    def add(self, ids: Tensor, traces: Sequence[LayerTrace]) -> None:
        for layer, trace in enumerate(traces):
            x = trace.rounds[0].residual  # (B, T, D)
            for m, r in enumerate(trace.rounds):
                if x.shape[-1] != r.estimate.shape[-1]:
                    continue  # one round of heads that are not as wide as x together
                left = (x - r.estimate).norm(dim=-1) / x.norm(dim=-1)  # (B, T)
                cosine = nn.functional.cosine_similarity(r.correction, r.residual, dim=-1)  # (B, T)
                gate = torch.ones_like(left) if r.gate is None else r.gate.mean(dim=-1)  # (B, T)
                both = torch.stack([left, cosine, gate], dim=-1).flatten(0, 1)  # (B*T, 3)
                self.found.setdefault((layer, m), Mean()).add(both)

    def result(self) -> list[dict[str, Any]]:
        names = ("left", "cosine", "gate")
        return [
            {"layer": layer, "round": m, **dict(zip(names, mean.value.tolist(), strict=True))}
            for (layer, m), mean in sorted(self.found.items())
        ]


@torch.no_grad()
def dynamics_probe(model: nn.Module, ids: Tensor) -> list[dict[str, Any]]:
    """The dynamics on a few rows (B, T): small enough to be taken at every evaluation of a training run."""
    study, was_training = DynamicsStudy(), model.training
    model.eval()
    try:
        with capture(model) as traces:
            model(ids[:, :LONGEST])
        study.add(ids, list(traces.values()))
    finally:
        model.train(was_training)
    return study.result()
