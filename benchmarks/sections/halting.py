"""Halting inside layers: a token that takes fewer rounds is decoded in less time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.bench import Bench
from benchmarks.ours import PAPER, TINY, Size, random_batch
from benchmarks.race import Race, Spread
from benchmarks.section import Section, Shown, ratio, seconds, table
from benchmarks.sections.decoding import ROOM, TOKENS, TURNS, Decoder
from boosted_attention.attention.halting import EPS, HaltingUnit
from boosted_attention.attention.trace import capture
from boosted_attention.model.language_model import LanguageModel

ROUNDS = 6
TAKEN = (6, 4, 3, 2, 1)  # rounds before tokens stop
ALL = "without halting"
MIXED = "mixed"  # tokens that stop at different rounds, in each layer
SPREAD = 2.0  # standard deviation of their logits, roughly


@dataclass(frozen=True, kw_only=True)
class HaltingAt:
    """Decoding at one batch, without halting and with tokens that stop after so many rounds."""

    batch: int
    context: int
    tokens: int  # that are decoded in a turn
    mixed: float  # mean rounds of the decoded tokens that stop at different ones
    decode: Race

    def share(self, taken: int | str) -> Spread:
        """Return the time of tokens that stop after so many rounds, or MIXED, as a share of that without halting."""
        return self.decode.ratio(str(taken), ALL)


@dataclass(frozen=True, kw_only=True)
class Halting:
    """Decoding of a model whose layers halt."""

    size: Size
    points: list[HaltingAt]


def build(size: Size, context: int, taken: int | str | None) -> LanguageModel:
    """Build a model with shared keys and values whose tokens stop after some rounds.

    With a halting probability of 1 / n the sum reaches one in round n.

    Args:
        size: of the model.
        context: tokens before those that are decoded.
        taken: rounds of every token, MIXED, or None for no halting.
    """
    options = {"n_rounds": ROUNDS, "kv_source": "shared", "halting": taken is not None}
    model = size.config("boosted", context + ROOM, 0.0, **options).build(seed=0)
    p = min(1 / taken, 1 - EPS / 2) if isinstance(taken, int) else 1 / 2
    std, draw = SPREAD / norm_of_states(model) if taken == MIXED else 0.0, torch.Generator().manual_seed(0)
    for unit in model.modules():
        if isinstance(unit, HaltingUnit):
            nn.init.constant_(unit.bias, math.log(p / (1 - p)))
            nn.init.normal_(unit.weight, std=std, generator=draw)
    return model


@torch.no_grad()
def norm_of_states(model: LanguageModel) -> float:
    """Return the usual norm of the states that halting units read, on random tokens."""
    norms: list[Tensor] = []
    units = [unit for unit in model.modules() if isinstance(unit, HaltingUnit)]
    hooks = [unit.register_forward_hook(lambda unit, args, out: norms.append(args[0].norm(dim=-1))) for unit in units]
    model(random_batch(model.config.vocab_size, 1, model.config.max_len)[0])
    for hook in hooks:
        hook.remove()
    return float(torch.cat([norm.flatten() for norm in norms]).median())


@torch.no_grad()
def mean_rounds(model: LanguageModel, ids: Tensor, tokens: int) -> float:
    """Return the mean number of rounds, over layers, of the tokens that a model continues prompts (B, T) with."""
    whole = model.generate(ids, tokens)
    with capture(model) as traces:
        model(whole)
    taken = [t.rounds_taken[:, ids.shape[1] :] for t in traces.values() if t.rounds_taken is not None]
    return float(torch.stack(taken).double().mean())


def measure(bench: Bench) -> Halting:
    """Time decoding at both batches."""
    size, context, batches = (TINY, 8, (1, 2)) if bench.quick else (PAPER, 64, (1, 16))
    points = []
    for i, batch in enumerate(batches):
        ids, _ = random_batch(size.vocab_size, batch, context)
        models = {ALL: build(size, context, None)} | {str(n): build(size, context, n) for n in (*TAKEN, MIXED)}
        candidates = {name: partial(Decoder(model, ids), TOKENS) for name, model in models.items()}
        race = bench.race(f"batch {batch}", candidates, TURNS, until=(i + 1) / len(batches))
        mixed = mean_rounds(models[MIXED], ids, TURNS * TOKENS)
        points.append(HaltingAt(batch=batch, context=context, tokens=TOKENS, mixed=mixed, decode=race))
    return Halting(size=size, points=points)


def show(halting: Halting) -> Shown:
    """Make the table."""
    rows = [
        [
            f"batch {point.batch}",
            seconds(point.decode.median(ALL) / point.tokens),
            *(ratio(point.share(taken)) for taken in (*TAKEN, MIXED)),
            f"{point.mixed:.1f}",
        ]
        for point in halting.points
    ]
    text = (
        f"`generate` with its cache after {halting.points[0].context} tokens ({halting.size}), {ROUNDS} rounds with "
        "shared keys and values: time per token as a share of that without halting, where every token stops after as "
        "many rounds as the column says; mixed: tokens and layers stop at different rounds, whose mean is in the last "
        "column. An untrained model repeats itself, so that one sequence has few different tokens.\n\n"
    )
    rounds = (f"{taken} rounds" if taken > 1 else "1 round" for taken in TAKEN)
    header = ["", ALL, *rounds, MIXED, "mean rounds"]
    return Shown(text=text + table(header, rows))


HALTING = Section(
    name="halting", title="Rounds that tokens leave out", minutes=0.5, result=Halting, measure=measure, show=show
)
