"""What heads attend to, round by round: the share of their weight that falls on a few kinds of keys.

The kinds overlap. Each share stands beside what uniform attention over the visible positions would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boosted_attention.analysis.survey import Mean
from boosted_attention.attention.trace import LayerTrace
from boosted_attention.documentation import documented

KEY_KINDS = ("itself", "previous token", "same token earlier", "punctuation", "first position")


@dataclass(frozen=True, kw_only=True)
class AttentionShares:
    """Shares of one round's attention in one layer, by kind of key."""

    layer: int
    round: int
    mean: dict[str, float]  # over heads
    heads: dict[str, list[float]]


@documented
@dataclass(frozen=True, kw_only=True)
class Specialisation:
    """Shares of all rounds of a model, beside those of uniform attention."""

    uniform: dict[str, float]  # Share that uniform attention over the visible positions gives each kind of key.
    rows: list[AttentionShares]  # Shares of each layer and round, by kind of key.


@dataclass(frozen=True, kw_only=True)
class SpecialisationComparison:
    """What a model attends to, and what the one it is compared with does if there is one."""

    model: Specialisation
    against: Specialisation | None


class SpecialisationStudy:
    """Mean share of attention on each kind of key, per layer, round and head.

    Args:
        punctuation: whether each token id is punctuation, (V,) bool.
    """

    def __init__(self, punctuation: Tensor):
        self.punctuation = punctuation
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
                if not r.has_map:
                    continue
                mass = torch.einsum("bhts,kbts->bhk", r.weights.float(), kinds) / ids.shape[1]
                self.heads.setdefault((layer, m), Mean()).add(mass)

    def result(self) -> Specialisation:
        rows = []
        for (layer, m), heads in sorted(self.heads.items()):
            mass = heads.value  # (H, kinds)
            rows.append(
                AttentionShares(
                    layer=layer,
                    round=m,
                    mean=dict(zip(KEY_KINDS, mass.mean(dim=0).tolist(), strict=True)),
                    heads={kind: mass[:, k].tolist() for k, kind in enumerate(KEY_KINDS)},
                )
            )
        return Specialisation(uniform=dict(zip(KEY_KINDS, self.uniform.value.tolist(), strict=True)), rows=rows)


def is_punctuation(text: str) -> bool:
    """Whether a token consists of signs and brackets, not of letters, digits, blanks or torn characters."""
    stripped = text.strip()
    return bool(stripped) and not any(c.isalnum() or c == "\ufffd" for c in stripped)
