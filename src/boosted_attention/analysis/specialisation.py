"""What heads attend to, round by round: the share of their weight that falls on a few kinds of keys.

The kinds overlap, and each stands beside what uniform attention over the visible positions would give it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boosted_attention.analysis.survey import Mean
from boosted_attention.attention.trace import LayerTrace

KINDS = ("itself", "previous token", "same token earlier", "punctuation", "first position")


class SpecialisationStudy:
    def __init__(self, punctuation: Tensor):
        self.punctuation = punctuation  # (V,) bool
        self.heads: dict[tuple[int, int], Mean] = {}
        self.uniform = Mean()

    def kinds(self, ids: Tensor) -> Tensor:
        """Which keys are of each kind for each query, (kinds, B, T, T)."""
        length = ids.shape[1]
        t, s = torch.arange(length, device=ids.device)[:, None], torch.arange(length, device=ids.device)[None]
        earlier = s < t
        same = (ids[:, :, None] == ids[:, None]) & earlier  # (B, T, T)
        marks = self.punctuation.to(ids.device)[ids][:, None] & (s <= t)
        fixed = [s == t, s == t - 1, (s == 0) & (s <= t)]
        itself, previous, first = (kind.expand_as(same) for kind in fixed)
        return torch.stack([itself, previous, same, marks, first])

    def add(self, ids: Tensor, traces: Sequence[LayerTrace]) -> None:
        kinds = self.kinds(ids).float()
        seen = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        self.uniform.add((kinds.sum(dim=-1) / seen).mean(dim=-1).T)  # (B, kinds)
        for layer, trace in enumerate(traces):
            for m, r in enumerate(trace.rounds):
                mass = torch.einsum("bhts,kbts->bhk", r.weights.float(), kinds) / ids.shape[1]
                self.heads.setdefault((layer, m), Mean()).add(mass)

    def result(self) -> dict[str, Any]:
        uniform = dict(zip(KINDS, self.uniform.value.tolist(), strict=True))
        rows = []
        for (layer, m), heads in sorted(self.heads.items()):
            mass = heads.value  # (H, kinds)
            rows.append(
                {
                    "layer": layer,
                    "round": m,
                    "mean": dict(zip(KINDS, mass.mean(dim=0).tolist(), strict=True)),
                    "heads": {kind: mass[:, k].tolist() for k, kind in enumerate(KINDS)},
                }
            )
        return {"uniform": uniform, "rows": rows}
