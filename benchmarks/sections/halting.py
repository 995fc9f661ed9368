"""Halting inside layers: a token that takes fewer rounds is decoded in less time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from torch import nn

from benchmarks.bench import Bench
from benchmarks.ours import PAPER, TINY, Size, random_batch
from benchmarks.race import Race, Spread
from benchmarks.section import Section, Shown, ratio, seconds, table
from benchmarks.sections.decoding import ROOM, TOKENS, TURNS, Decoder
from boosted_attention.attention.halting import EPS, HaltingUnit
from boosted_attention.model.language_model import LanguageModel

ROUNDS = 6
TAKEN = (6, 4, 3, 2, 1)  # rounds before tokens stop
ALL = "without halting"


@dataclass(frozen=True, kw_only=True)
class HaltingAt:
    """Decoding at one batch, without halting and with tokens that stop after so many rounds."""

    batch: int
    context: int
    tokens: int  # that are decoded in a turn
    decode: Race

    def share(self, taken: int) -> Spread:
        """Return the time of tokens that stop after so many rounds as a share of that without halting."""
        return self.decode.ratio(str(taken), ALL)


@dataclass(frozen=True, kw_only=True)
class Halting:
    """Decoding of a model whose layers halt."""

    size: Size
    points: list[HaltingAt]


def build(size: Size, context: int, taken: int | None) -> LanguageModel:
    """Build a model with shared keys and values whose tokens all stop after so many rounds; None for no halting.

    With a halting probability of 1 / n the sum reaches one in round n.
    """
    options = {"n_rounds": ROUNDS, "kv_source": "shared", "halting": taken is not None}
    model = size.config("boosted", context + ROOM, 0.0, **options).build(seed=0)
    if taken is not None:
        p = min(1 / taken, 1 - EPS / 2)
        for unit in model.modules():
            if isinstance(unit, HaltingUnit):
                nn.init.constant_(unit.bias, math.log(p / (1 - p)))
    return model


def measure(bench: Bench) -> Halting:
    """Time decoding at both batches."""
    size, context, batches = (TINY, 8, (1, 2)) if bench.quick else (PAPER, 64, (1, 16))
    points = []
    for i, batch in enumerate(batches):
        ids, _ = random_batch(size.vocab_size, batch, context)
        models = {ALL: build(size, context, None)} | {str(n): build(size, context, n) for n in TAKEN}
        candidates = {name: partial(Decoder(model, ids), TOKENS) for name, model in models.items()}
        race = bench.race(f"batch {batch}", candidates, TURNS, until=(i + 1) / len(batches))
        points.append(HaltingAt(batch=batch, context=context, tokens=TOKENS, decode=race))
    return Halting(size=size, points=points)


def show(halting: Halting) -> Shown:
    """Make the table."""
    rows = [
        [
            f"batch {point.batch}",
            seconds(point.decode.median(ALL) / point.tokens),
            *(ratio(point.share(taken)) for taken in TAKEN),
        ]
        for point in halting.points
    ]
    text = (
        f"`generate` with its cache after {halting.points[0].context} tokens ({halting.size}), {ROUNDS} rounds with "
        "shared keys and values: time per token as a share of that without halting, where every token stops after as "
        "many rounds as the column says.\n\n"
    )
    header = ["", ALL, *(f"{taken} rounds" if taken > 1 else "1 round" for taken in TAKEN)]
    return Shown(text=text + table(header, rows))


HALTING = Section(
    name="halting", title="Rounds that tokens leave out", minutes=0.5, result=Halting, measure=measure, show=show
)
