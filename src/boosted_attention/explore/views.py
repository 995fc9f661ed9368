"""What the page shows of a model and a text: guesses, and what each round of each layer did at one token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from boosted_attention.attention.trace import RoundTrace
from boosted_attention.explore.lens import AnyLens
from boosted_attention.explore.passes import Check, Pass, PassedLayer, plain_logits, run_pass
from boosted_attention.explore.patching import Factors

GUESSES = 8
LENS_GUESSES = 3


@dataclass(frozen=True, kw_only=True)
class Guess:
    """A token that may come next."""

    id: int
    token: str
    probability: float
    was: float | None = None  # its probability without patches; None where there are none


@dataclass(frozen=True, kw_only=True)
class LensView:
    """What a round changed in the prediction that the stream holds at this layer."""

    before: list[Guess]
    after: list[Guess]
    followed_before: float  # probability of the followed token
    followed_after: float
    divergence: float  # of the prediction after the round from the one before, in nats


@dataclass(frozen=True, kw_only=True)
class RoundView:
    """One round of one layer: at the chosen token, and its gates and residuals at all."""

    round: int
    factor: float  # of its gate; 0 where it is switched off
    attention: list[list[float]] | None = None  # by head, from the chosen token to each one up to it
    gate: list[float] | None = None  # mean over dimensions, by token
    gate_by_head: list[float] | None = None  # at the chosen token
    residual: list[float] | None = None  # norm of what the round looked at, by token
    added: float | None = None  # norm of what the round added, at the chosen token
    lens: LensView | None = None


@dataclass(frozen=True, kw_only=True)
class SideView:
    """One model on the text."""

    guesses: list[Guess]
    surprise: list[float]  # loss of each token but the first, in nats
    followed: Guess  # the token that lenses follow: the text's next one, or the likeliest
    layers: list[list[RoundView]]  # by layer and round; they come one by one


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything the page shows at once."""

    tokens: list[str]
    ids: list[int]
    position: int
    sides: list[SideView]


@dataclass(frozen=True, kw_only=True)
class Looked:
    """One model on the text: what is shown of it at once, and the pass from which its layers are shown."""

    side: SideView  # without layers
    done: Pass
    factors: Factors


def look_at(
    model: nn.Module, ids: Tensor, position: int, factors: Factors, vocabulary: Sequence[str], check: Check
) -> Looked:
    """Run one model over a text.

    Args:
        model: the model, in evaluation mode.
        ids: token ids (T,).
        position: the chosen token.
        factors: factors of gates, as ``patched`` takes them.
        vocabulary: the text of every token id.
        check: called before every layer, and raises where nobody waits any more.
    """
    done = run_pass(model, ids, factors, check)
    now = done.logits[position].softmax(dim=-1)  # (V,)
    was = plain_logits(model, ids)[position].softmax(dim=-1) if factors else None
    guesses = likeliest(now, GUESSES, vocabulary, was)
    target = int(ids[position + 1]) if position + 1 < len(ids) else guesses[0].id
    side = SideView(
        guesses=guesses,
        surprise=nn.functional.cross_entropy(done.logits[:-1], ids[1:], reduction="none").tolist(),
        followed=guess(target, now, vocabulary, was),
        layers=[],
    )
    return Looked(side=side, done=done, factors=factors)


def layer_view(looked: Looked, layer: int, position: int, vocabulary: Sequence[str]) -> list[RoundView]:
    """Look at the rounds of one layer."""
    passed = looked.done.layers[layer]
    lenses = lens_views(looked.done.lens, passed, layer, position, looked.side.followed.id, vocabulary)
    return [
        round_view(passed, m, position, looked.factors.get((layer, m), 1.0), lenses.get(m))
        for m in range(passed.n_rounds)
    ]


def likeliest(p: Tensor, count: int, vocabulary: Sequence[str], was: Tensor | None = None) -> list[Guess]:
    """Return the likeliest tokens of probabilities (V,)."""
    return [guess(i, p, vocabulary, was) for i in p.topk(min(count, len(p))).indices.tolist()]


def guess(i: int, p: Tensor, vocabulary: Sequence[str], was: Tensor | None = None) -> Guess:
    """Describe one token of probabilities (V,); a model may have spare ids beyond the vocabulary."""
    token = vocabulary[i] if i < len(vocabulary) else f"<{i}>"
    return Guess(id=i, token=token, probability=float(p[i]), was=None if was is None else float(was[i]))


def round_view(passed: PassedLayer, m: int, position: int, factor: float, lens: LensView | None) -> RoundView:
    """Look at round m of a layer; one that is switched off has nothing to show."""
    trace = passed.rounds.get(m)
    if trace is None:
        return RoundView(round=m, factor=0.0)
    gate = trace.gate
    return RoundView(
        round=m,
        factor=factor,
        attention=trace.weights[0, :, position, : position + 1].float().tolist() if trace.has_map else None,
        gate=None if gate is None else gate[0].float().mean(dim=-1).tolist(),
        gate_by_head=gates_of_heads(trace, passed.n_heads, position),
        residual=trace.residual[0].float().norm(dim=-1).tolist(),
        added=float(trace.added[0, position].float().norm()),
        lens=lens,
    )


def gates_of_heads(trace: RoundTrace, n_heads: int | None, position: int) -> list[float] | None:
    """Return the mean gate of each head; None where a gate is shared, or neither it nor the estimate has heads."""
    if trace.gate is not None and trace.head_gate is not None:
        return trace.gate[0, position].float().tolist()  # (H,)
    if trace.gate is None or n_heads is None or trace.gate.shape[-1] == 1:
        return None
    return trace.gate[0, position].float().view(n_heads, -1).mean(dim=-1).tolist()  # (D,) -> (H,)


def lens_views(
    lens: AnyLens | None, passed: PassedLayer, layer: int, position: int, target: int, vocabulary: Sequence[str]
) -> dict[int, LensView]:
    """Read the stream before and behind every round that ran, all of them with one product; by round."""
    if lens is None:
        return {}
    estimates = [None, *(trace.estimate for trace in passed.rounds.values())]
    read = lens.predicts(
        torch.stack([lens.stream(layer, estimate)[0, position] for estimate in estimates])
    )  # (M + 1, V)
    return {
        m: lens_view(before, after, target, vocabulary)
        for m, before, after in zip(passed.rounds, read[:-1], read[1:], strict=True)
    }


def lens_view(before: Tensor, after: Tensor, target: int, vocabulary: Sequence[str]) -> LensView:
    """Compare log-probabilities (V,) before a round with those behind it."""
    return LensView(
        before=likeliest(before.exp(), LENS_GUESSES, vocabulary),
        after=likeliest(after.exp(), LENS_GUESSES, vocabulary),
        followed_before=math.exp(float(before[target])),
        followed_after=math.exp(float(after[target])),
        divergence=max(0.0, float((after.exp() * (after - before)).sum())),
    )
