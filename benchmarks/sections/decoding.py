"""Decoding from a cache: time per token against the context, prefill apart, and the bound that memory sets.

Models decode in lockstep: each is in the middle of one long ``generate`` and goes on by a few tokens at a time, so that
the prompt is read once and what is compared lies milliseconds apart.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks.bench import Bench
from benchmarks.machine import cache_bytes
from benchmarks.ours import PAPER, TINY, Size, random_batch
from benchmarks.race import Race, Spread
from benchmarks.section import Section, Shown, megabytes, ratio, seconds, table
from boosted_attention.chart import Figure, Panel, Series
from boosted_attention.model.generation import Sampling, decode
from boosted_attention.model.language_model import LanguageModel

FORMS = ("standard", "boosted", "boosted-shared", "twicing")
TURNS, PREFILL_TURNS = 15, 7
TOKENS = 8  # that a model decodes in its turn: few, for they lengthen the context
ROOM = 1000  # tokens a model may decode beyond its prompt, turns that are repeated included
MODEL, VECTOR = "standard, context 64", "matrix-vector product"
COPIES = 4  # caches' worth of weights that take turns, so that each comes from memory


@dataclass(frozen=True, kw_only=True)
class Point:
    """Decoding at one context and batch."""

    batch: int
    context: int
    tokens: int  # that are decoded in a turn
    flops: dict[str, int]  # per token, at the mean context of the turns
    decode: Race

    def price(self, form: str) -> Spread:
        """Return time over standard's, divided by FLOPs over standard's."""
        return self.decode.ratio(form, "standard").times(self.flops["standard"] / self.flops[form])


@dataclass(frozen=True, kw_only=True)
class FromMemory:
    """Decoding against a matrix-vector product over as many bytes, the weights of both coming from memory."""

    weight_bytes: int
    copies: int
    race: Race

    def over_bound(self) -> Spread:
        """Return the time of decoding as a multiple of the product's."""
        return self.race.ratio(MODEL, VECTOR)


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Time per token at all contexts, prefill at batch 1, and the bound."""

    size: Size
    points: list[Point]
    prefill: dict[int, Race]  # by context
    from_memory: FromMemory


class Decoder:
    """A model's ``generate`` under way, which goes on by so many tokens when it is called; first it reads the prompt.

    Args:
        model: the model.
        ids: the prompts (B, T).
    """

    def __init__(self, model: LanguageModel, ids: Tensor):
        self.steps = decode(model, ids, ROOM, None, Sampling(), None, True)
        self.decoded = 0  # tokens so far

    def __call__(self, tokens: int) -> None:
        for _ in range(tokens):
            next(self.steps)
            self.decoded += 1


def build(size: Size, form: str, context: int) -> LanguageModel:
    """Build a model with room for the context and what follows it."""
    return size.config(form, context + ROOM, 0.0).build(seed=0)


def measure(bench: Bench) -> Decoding:
    """Time decoding at every context and batch, then prefill, then the bound."""
    size, contexts, batches = PAPER, (64, 256, 1024, 2048), (1, 16)
    if bench.quick:
        size, contexts, batches = TINY, (8, 16), (1, 2)
    places = [(batch, context) for batch in batches for context in contexts]
    points = [
        measure_point(bench, size, batch, context, 0.7 * (i + 1) / len(places))
        for i, (batch, context) in enumerate(places)
    ]
    prefill = {}
    for i, context in enumerate(contexts):
        ids, _ = random_batch(size.vocab_size, 1, context)
        prompts = {form: partial(build(size, form, context).generate, ids, 1) for form in FORMS}
        until = 0.7 + 0.2 * (i + 1) / len(contexts)
        prefill[context] = bench.race(f"prefill of {context}", prompts, PREFILL_TURNS, until=until)
    return Decoding(size=size, points=points, prefill=prefill, from_memory=measure_bound(bench, size, contexts[0]))


def measure_point(bench: Bench, size: Size, batch: int, context: int, until: float) -> Point:
    """Time decoding in lockstep at one context and batch."""
    ids, _ = random_batch(size.vocab_size, batch, context)
    decoders = {form: Decoder(build(size, form, context), ids) for form in FORMS}
    candidates = {form: partial(advance, TOKENS) for form, advance in decoders.items()}
    race = bench.race(f"batch {batch}, context {context}", candidates, TURNS, until=until)
    mean = context + (TOKENS + decoders["standard"].decoded) // 2  # the first turn only warms up
    flops = {form: size.config(form, mean, 0.0).flops() for form in FORMS}
    return Point(batch=batch, context=context, tokens=TOKENS, flops=flops, decode=race)


def measure_bound(bench: Bench, size: Size, context: int) -> FromMemory:
    """Time decoding against a product over as many weights, on copies that no cache holds together."""
    model = build(size, "standard", context)
    positions = 0 if model.positions is None else model.positions.weight.nbytes  # of which one row is read
    used = sum(p.nbytes for p in model.parameters()) - positions
    n_copies = 2 if bench.quick else max(2, -(-COPIES * cache_bytes() // used))
    width = 1024
    matrices = [torch.randn(used // (4 * width), width) for _ in range(n_copies)]
    vector = torch.randn(width)

    def multiply() -> None:
        for matrix in matrices:
            torch.mv(matrix, vector)

    ids, _ = random_batch(size.vocab_size, 1, context)
    decoders = [Decoder(copied, ids) for copied in (model, *(copy.deepcopy(model) for _ in range(n_copies - 1)))]

    def decode_one_each() -> None:
        for advance in decoders:
            advance(1)

    candidates: dict[str, Callable[[], None]] = {MODEL: decode_one_each, VECTOR: multiply}
    race = bench.race("against a matrix-vector product", candidates, 2 * TURNS, until=1.0)
    return FromMemory(weight_bytes=used, copies=n_copies, race=race)


def show(decoding: Decoding) -> Shown:
    """Make the tables and plots."""
    others = [form for form in FORMS if form != "standard"]
    rows = []
    for point in decoding.points:
        token = point.decode.median("standard") / point.tokens
        found = [ratio(point.decode.ratio(form, "standard")) for form in others]
        rows.append(
            [f"batch {point.batch}, context {point.context}", seconds(token), *found, ratio(point.price("boosted"))]
        )
    header = ["", "standard, per token", *(f"{form}, times that" for form in others), "boosted, over its FLOPs"]
    before = [
        [str(context), seconds(race.median("standard")), *(ratio(race.ratio(form, "standard")) for form in others)]
        for context, race in sorted(decoding.prefill.items())
    ]
    bound = decoding.from_memory
    text = (
        f"`generate` with its cache ({decoding.size}), the likeliest token each time. *Over its FLOPs* is the ratio of "
        "times divided by the ratio of FLOPs per token at the mean context of the turns, which lengthen it.\n\n"
        + table(header, rows)
        + "\n### Prefill, batch 1\n\n"
        + table(["context", "standard", *(f"{form}, times that" for form in others)], before)
        + "\n### The bound that memory sets\n\n"
        + f"Each token reads {megabytes(bound.weight_bytes)} of weights. {bound.copies} copies of the standard model "
        + "decode one token each in turn, so that no cache holds what comes next; against them stand matrix-vector "
        + f"products over as many bytes, taking turns alike. Decoding takes {ratio(bound.over_bound())} times "
        + "the product.\n"
    )
    return Shown(text=text, figures=[figure(decoding)])


def figure(decoding: Decoding) -> Figure:
    """Draw time per token against the context, for each batch."""
    panels = []
    for batch in dict.fromkeys(point.batch for point in decoding.points):
        points = [point for point in decoding.points if point.batch == batch]
        contexts = [float(point.context) for point in points]
        series = [
            Series(name=form, x=contexts, y=[1000 * p.decode.median(form) / p.tokens for p in points]) for form in FORMS
        ]
        panels.append(
            Panel(
                title=f"batch {batch}",
                x_label="context",
                y_label="milliseconds per step",
                series=series,
                ticks={x: f"{x:.0f}" for x in contexts},
                log_x=True,
                from_zero=True,
            )
        )
    return Figure(name="decoding", title="Decoding", caption="Time per token against the context", panels=panels)


DECODING = Section(
    name="decoding", title="Decoding from a cache", minutes=2, result=Decoding, measure=measure, show=show
)
