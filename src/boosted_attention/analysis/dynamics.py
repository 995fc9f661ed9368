"""Does a round do what boosting says? How far the estimate is from x after each round, and which way it was moved.

    ||x - F_m|| / ||x||   after round m;    cos(c_m, r_m)   the correction against the residual it saw

Training fits no round to its residual (only the model's loss does), so neither needs to fall or to be positive. In head
space the output projection comes after F, so x - F compares vectors of different bases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from boosted_attention.analysis.survey import Mean
from boosted_attention.attention.trace import LayerTrace, capture
from boosted_attention.documentation import documented

PROBE_LENGTH = 128  # tokens that ``dynamics_probe`` reads of each row


@documented
@dataclass(frozen=True, kw_only=True)
class RoundDynamics:
    """Averages over tokens of one round in one layer."""

    layer: int  # Index of the layer, from 0.
    round: int  # Index of the round, from 0.
    left: float  # Distance left after the round, ||x - F_m|| / ||x||.
    cosine: float  # Cosine of the correction with the residual it saw, cos(c_m, r_m).
    gate: float  # Mean gate of the round; 1 in round 0.


@documented
@dataclass(frozen=True, kw_only=True)
class DynamicsAtStep:
    """The dynamics at one step of training."""

    step: int  # Updates done when the rounds were measured.
    rounds: list[RoundDynamics]  # Dynamics of every layer and round at that step.


class DynamicsStudy:
    """Averages per layer and round; layers whose heads together are not as wide as x are left out."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, int], Mean] = {}

    def add(self, ids: Tensor, traces: Sequence[LayerTrace]) -> None:
        for layer, trace in enumerate(traces):
            x = trace.rounds[0].residual  # (B, T, D)
            for m, r in enumerate(trace.rounds):
                if x.shape[-1] != r.estimate.shape[-1]:
                    continue
                left = (x - r.estimate).norm(dim=-1) / x.norm(dim=-1)  # (B, T)
                cosine = nn.functional.cosine_similarity(r.correction, r.residual, dim=-1)  # (B, T)
                gate = r.gate
                gate = torch.ones_like(left) if gate is None else gate.mean(dim=-1)  # (B, T)
                both = torch.stack([left, cosine, gate], dim=-1).flatten(0, 1)  # (B*T, 3)
                self.found.setdefault((layer, m), Mean()).add(both)

    def result(self) -> list[RoundDynamics]:
        found = []
        for (layer, m), mean in sorted(self.found.items()):
            left, cosine, gate = mean.value.tolist()
            found.append(RoundDynamics(layer=layer, round=m, left=left, cosine=cosine, gate=gate))
        return found


@torch.no_grad()
def dynamics_probe(model: nn.Module, ids: Tensor) -> list[RoundDynamics]:
    """Measure the dynamics on a few rows, cheaply enough for every evaluation of a training run.

    Args:
        model: any module that contains attention layers of boosted_attention; its mode is left as it was.
        ids: token ids (B, T), of which the first PROBE_LENGTH positions are read.
    """
    study, was_training = DynamicsStudy(), model.training
    model.eval()
    try:
        with capture(model) as traces:
            model(ids[:, :PROBE_LENGTH])
        study.add(ids, list(traces.values()))
    finally:
        model.train(was_training)
    return study.result()
