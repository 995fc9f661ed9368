"""Attention maps of all rounds in the form that bertviz and circuitsvis take.

    with capture(model) as traces:
        model(ids)
    maps = attention_maps(traces, tokens)
    bertviz.head_view(maps.by_round(), maps.tokens)
    circuitsvis.attention.attention_heads(maps.by_head(), maps.tokens, maps.head_names())

The pages that these two packages make load scripts from other servers when they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boosted_attention.attention.trace import LayerTrace
from boosted_attention.documentation import documented
from boosted_attention.validation import require


@documented
@dataclass(frozen=True, kw_only=True)
class AttentionMaps:
    """Attention maps of one text, round by round and layer by layer."""

    tokens: list[str]  # Texts of the T tokens.
    rounds: list[str]  # Names of the rounds that have maps, such as "layer 2 round 1".
    weights: list[Tensor]  # Attention weights (H, T, T) of each of them.
    left_out: list[str]  # Names of the rounds that have no attention map, such as those of ``local``.

    def by_round(self) -> list[Tensor]:
        """Return one tensor (1, H, T, T) per round, as bertviz takes one per layer; its layer i is ``rounds[i]``."""
        numbers = sorted({len(weights) for weights in self.weights})
        require(
            len(numbers) == 1,
            f"maps: rounds have {' and '.join(map(str, numbers))} heads, and bertviz takes one number; use by_head() "
            "with circuitsvis",
        )
        return [weights[None] for weights in self.weights]

    def by_head(self) -> Tensor:
        """Return the maps of all heads (N, T, T), as circuitsvis takes them, in the order of ``head_names``."""
        return torch.cat(self.weights)

    def head_names(self) -> list[str]:
        """Return the names of all heads, such as "layer 2 round 1 head 3"."""
        rounds = zip(self.rounds, self.weights, strict=True)
        return [f"{name} head {h}" for name, weights in rounds for h in range(len(weights))]


def attention_maps(traces: Mapping[str, LayerTrace], tokens: Sequence[str], *, row: int = 0) -> AttentionMaps:
    """Take the attention maps of one sequence out of traces.

    Layers, rounds and heads are numbered from 0, rounds as in the traces: among those that ran.

    Args:
        traces: what ``capture`` gives, after a forward pass; of blocks that are applied repeatedly, the last time.
        tokens: texts of the sequence's tokens.
        row: the sequence's row of the batch.
    """
    rounds = {
        f"layer {layer_number(name, i)} round {m}": r
        for i, (name, trace) in enumerate(traces.items())
        for m, r in enumerate(trace.rounds)
    }
    require(bool(rounds), "traces: nothing was traced; run the model inside the block of capture")
    shown = {name: r.weights for name, r in rounds.items() if r.has_map}  # (B, H, T, S) each
    require(bool(shown), f"traces: none of the {len(rounds)} rounds has an attention map")
    for name, weights in shown.items():
        batch, _, queries, keys = weights.shape
        require(-batch <= row < batch, f"row={row}: the batch has {batch}, from 0 on")
        require(queries == keys, f"traces: {name} has {queries} queries and {keys} keys; pass a whole text, uncached")
        require(len(tokens) == keys, f"tokens has {len(tokens)} entries; the traced sequence has {keys} positions")
    return AttentionMaps(
        tokens=list(tokens),
        rounds=list(shown),
        weights=[weights[row].detach().float().cpu() for weights in shown.values()],
        left_out=[name for name, r in rounds.items() if not r.has_map],
    )


def layer_number(name: str, place: int) -> int:
    """Return the number in a layer's name, such as 3 of model.layers.3.self_attn; its place where there is none."""
    numbers = [int(part) for part in name.split(".") if part.isdecimal()]
    return numbers[0] if numbers else place
