"""Training steps: ours beside the plain model and the peers, and how much of the machine they use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.bench import Bench
from benchmarks.ours import PAPER, TINY, Size, our_step, random_batch
from benchmarks.peers import PEERS, peer_step, require_peers
from benchmarks.plain import plain_step
from benchmarks.race import Race, Spread
from benchmarks.section import Section, Shown, percent, ratio, seconds, table
from boosted_attention import InputError, list_attention
from boosted_attention.chart import Figure, Panel, Series, beside

FORMS = ("standard", "boosted", "twicing")
DROPOUTS = (0.1, 0.0)
PRODUCT = "matrix product"
TRAINING = 3  # FLOPs of a training step, as a multiple of the forward pass
TURNS, LAYER_TURNS = 7, 5


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Length of the sequences and rows of the batch."""

    length: int
    rows: int

    def __str__(self) -> str:
        return f"T={self.length}, batch {self.rows}"


@dataclass(frozen=True, kw_only=True)
class Product:
    """The matrix product that stands for the machine: (rows, inner) times (inner, columns), so many times."""

    rows: int
    inner: int
    columns: int
    times: int

    @property
    def flops(self) -> int:
        """Multiplications and additions of all of them."""
        return 2 * self.rows * self.inner * self.columns * self.times

    def run(self) -> Callable[[], None]:
        """Return a function that computes them, in float32, as a linear layer does."""
        x, weight = torch.randn(self.rows, self.inner), torch.randn(self.columns, self.inner)

        def multiply() -> None:
            for _ in range(self.times):
                functional.linear(x, weight)

        return multiply


@dataclass(frozen=True, kw_only=True)
class StepsAt:
    """What was measured in one setting: models beside each other, and the other layers of the catalog."""

    setting: Setting
    product: Product
    flops: dict[str, int]  # of a forward pass of our forms, per token
    models: Race
    layers: Race

    def ours_against(self, other: str, form: str, dropout: float) -> Spread:
        """Return how many times faster our form is than another model."""
        return self.models.ratio(run_name(other, dropout), run_name(ours(form), dropout))

    def share(self, form: str, dropout: float) -> Spread:
        """Return which part of the matrix-multiply rate our step reaches, by the FLOPs of its mathematics."""
        work = TRAINING * self.flops[form] * self.setting.length * self.setting.rows
        return self.models.ratio(PRODUCT, run_name(ours(form), dropout)).times(work / self.product.flops)

    def price(self, form: str, dropout: float) -> Spread:
        """Return time over standard, divided by FLOPs over standard's."""
        time = self.models.ratio(run_name(ours(form), dropout), run_name(ours("standard"), dropout))
        return time.times(self.flops["standard"] / self.flops[form])

    def dropouts(self) -> dict[str, Spread]:
        """Return what dropout costs each layer: its step at 0.1 as a multiple of its step at 0."""
        found = {form: self.models.ratio(*(run_name(ours(form), p) for p in DROPOUTS)) for form in FORMS}
        others = dict.fromkeys(name.rpartition(", dropout")[0] for name in self.layers.seconds)
        return found | {layer: self.layers.ratio(*(run_name(layer, p) for p in DROPOUTS)) for layer in others}

    def rate(self) -> float:
        """Return the matrix-multiply rate in FLOPs per second."""
        return self.product.flops / self.models.median(PRODUCT)


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Training steps in all settings."""

    size: Size
    settings: list[StepsAt]


def ours(form: str) -> str:
    """Return what our model is called in a race of models."""
    return f"ours, {form}"


def plain(form: str) -> str:
    """Return what the plain model is called in a race of models."""
    return f"plain, {form}"


def run_name(who: str, dropout: float) -> str:
    """Return the name of a candidate."""
    return f"{who}, dropout {dropout:g}"


def droppable(size: Size) -> list[str]:
    """Return the layers of the catalog that take dropout."""
    found = []
    for name in list_attention():
        try:
            size.config(name, 8, DROPOUTS[0])
        except InputError:  # a random map has no fixed point
            continue
        found.append(name)
    return found


def measure(bench: Bench) -> Steps:
    """Time everything in both settings."""
    require_peers()
    size, settings = PAPER, [Setting(length=256, rows=8), Setting(length=1024, rows=2)]
    if bench.quick:
        size, settings = TINY, [Setting(length=16, rows=2), Setting(length=32, rows=1)]
    found = [measure_at(bench, size, at, i / len(settings), 1 / len(settings)) for i, at in enumerate(settings)]
    return Steps(size=size, settings=found)


def measure_at(bench: Bench, size: Size, at: Setting, start: float, share: float) -> StepsAt:
    """Time everything in one setting, which is a share of the section."""
    data = random_batch(size.vocab_size, at.rows, at.length)
    product = Product(
        rows=at.rows * at.length, inner=size.d_model, columns=4 * size.d_model, times=2 if bench.quick else 40
    )
    models = bench.race(
        f"models, {at}", {PRODUCT: product.run()} | contenders(size, at, data), TURNS, until=start + 0.55 * share
    )
    others = [name for name in droppable(size) if name not in FORMS]
    seconds: dict[str, list[float]] = {}
    for i, name in enumerate(others):  # each with a race of its own, so that what is compared lies seconds apart
        both = {run_name(name, p): partial(our_step(size.config(name, at.length, p)), *data) for p in DROPOUTS}
        until = start + share * (0.55 + 0.45 * (i + 1) / len(others))
        seconds |= bench.race(f"{name}, {at}", both, LAYER_TURNS, until=until).seconds
    return StepsAt(
        setting=at,
        product=product,
        flops={form: size.config(form, at.length, 0.0).flops() for form in FORMS},
        models=models,
        layers=Race(clock=models.clock, seconds=seconds),
    )


def contenders(size: Size, at: Setting, data: tuple[Tensor, Tensor]) -> dict[str, Callable[[], None]]:
    """Return the steps of our models, the plain ones and the peers, by name."""
    steps: dict[str, Callable[[], None]] = {}
    for p in DROPOUTS:
        for form in FORMS:
            config = size.config(form, at.length, p)
            steps[run_name(ours(form), p)] = partial(our_step(config), *data)
            steps[run_name(plain(form), p)] = partial(plain_step(config), *data)
        for peer in PEERS:
            steps[run_name(peer, p)] = partial(peer_step(peer, size.config("standard", at.length, p)), *data)
    return steps


def show(steps: Steps) -> Shown:
    """Make the tables and plots."""
    parts = [
        f"One update as the trainer makes it: forward, backward, clipping, AdamW ({steps.size}). *Faster* is the "
        "other's time over ours, of the same form for the plain model and of standard attention for the peers. The "
        "share of the machine is FLOPs (`flops()`, all keys, times three) per second over the rate of a float32 matrix "
        "product.\n"
    ]
    for at in steps.settings:
        p = at.product
        parts.append(f"### {at.setting}\n")
        parts.append(
            f"Matrix product {p.rows} x {p.inner} by {p.inner} x {p.columns}, a feed-forward network's first: "
            f"{at.rate() / 1e9:.0f} GFLOP/s.\n"
        )
        parts.append(table(["", *both("time"), *both("ours faster"), *both("share")], step_rows(at)))
    layers = list(steps.settings[0].dropouts())
    cost = [[name, *(ratio(at.dropouts()[name]) for at in steps.settings)] for name in layers]
    parts.append("### What dropout costs\n")
    parts.append("A step with dropout 0.1 as a multiple of the same model's step without.\n")
    parts.append(table(["layer", *(str(at.setting) for at in steps.settings)], cost))
    absent = [name for name in droppable(PAPER) if name not in layers] if steps.size == PAPER else []
    if absent:
        parts.append(f"Not measured, since the catalog has them from later on: {', '.join(absent)}.\n")
    return Shown(text="\n".join(parts), figures=[steps_figure(steps), dropout_figure(steps)])


def both(what: str) -> list[str]:
    """Return a column for each dropout."""
    return [f"{what}, dropout {p:g}" for p in DROPOUTS]


def step_rows(at: StepsAt) -> list[list[str]]:
    """Return a row for each model."""
    rows = []
    for who in (*map(ours, FORMS), *map(plain, FORMS), *PEERS):
        _, _, form = who.partition(", ")
        times = [seconds(at.models.median(run_name(who, p))) for p in DROPOUTS]
        if who == ours(form):
            rows.append([who, *times, "", "", *(percent(at.share(form, p)) for p in DROPOUTS)])
        else:
            base = form if who == plain(form) else "standard"
            rows.append([who, *times, *(ratio(at.ours_against(who, base, p)) for p in DROPOUTS), "", ""])
    return rows


def steps_figure(steps: Steps) -> Figure:
    """Draw the times of all models in every setting."""
    panels = []
    for at in steps.settings:
        for p in DROPOUTS:
            series = []
            for i, who in enumerate(("ours", "plain")):
                shift, width = beside(2, i)
                found = [at.models.median(run_name(f"{who}, {form}", p)) for form in FORMS]
                series.append(
                    Series(name=who, x=[j + shift for j in range(len(FORMS))], y=found, style="bars", width=width)
                )
            peers = [at.models.median(run_name(peer, p)) for peer in PEERS]
            series.append(
                Series(name="peers", x=[len(FORMS) + j for j in range(len(PEERS))], y=peers, style="bars", width=0.4)
            )
            panels.append(
                Panel(
                    title=f"{at.setting}, dropout {p:g}",
                    x_label="",
                    y_label="seconds",
                    series=series,
                    ticks=dict(enumerate((*FORMS, *PEERS))),
                    from_zero=True,
                )
            )
    return Figure(name="steps", title="Training steps", caption="CPU seconds of a training step", panels=panels)


def dropout_figure(steps: Steps) -> Figure:
    """Draw what dropout costs every layer."""
    layers = list(steps.settings[0].dropouts())
    series = []
    for i, at in enumerate(steps.settings):
        shift, width = beside(len(steps.settings), i)
        found = at.dropouts()
        series.append(
            Series(
                name=str(at.setting),
                x=[j + shift for j in range(len(layers))],
                y=[found[name].median for name in layers],
                low=[found[name].low for name in layers],
                high=[found[name].high for name in layers],
                style="bars",
                width=width,
            )
        )
    panel = Panel(
        x_label="",
        y_label="times the step without dropout",
        series=series,
        ticks=dict(enumerate(layers)),
        levels={"no cost": 1.0},
    )
    return Figure(name="dropout", title="What dropout costs", caption="Dropout 0.1 against 0", panels=[panel])


STEPS = Section(name="steps", title="Training steps", minutes=20, result=Steps, measure=measure, show=show)
