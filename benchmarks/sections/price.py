"""The price of boosting: time and memory of more rounds and of other sources of keys, beside their FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from benchmarks.bench import Bench
from benchmarks.ours import PAPER, TINY, Size, our_step, random_batch
from benchmarks.peak import peak_of_step
from benchmarks.race import Race, Spread
from benchmarks.section import Section, Shown, megabytes, ratio, table
from benchmarks.sections.steps import Setting
from boosted_attention.chart import Figure, Panel, Series, beside

DROPOUT, TURNS = 0.1, 5
ARMS = {  # catalog name and options
    "standard": ("standard", {}),
    "boosted, M=2": ("boosted", {}),
    "boosted, M=3": ("boosted", {"n_rounds": 3}),
    "boosted-input, M=2": ("boosted-input", {}),
    "boosted-shared, M=2": ("boosted-shared", {}),
    "parallel, M=2": ("parallel", {}),
}


@dataclass(frozen=True, kw_only=True)
class Price:
    """Time, memory and FLOPs of a training step of every arm."""

    size: Size
    setting: Setting
    steps: Race
    peaks: dict[str, int]  # bytes
    flops: dict[str, int]  # per token

    def time(self, arm: str) -> Spread:
        """Return the time as a multiple of standard's."""
        return self.steps.ratio(arm, "standard")

    def work(self, arm: str) -> float:
        """Return the FLOPs as a multiple of standard's."""
        return self.flops[arm] / self.flops["standard"]

    def memory(self, arm: str) -> float:
        """Return the peak memory as a multiple of standard's."""
        return self.peaks[arm] / self.peaks["standard"]


def measure(bench: Bench) -> Price:
    """Time a step of every arm, and find its peak in a process of its own."""
    size, at = (TINY, Setting(length=32, rows=2)) if bench.quick else (PAPER, Setting(length=256, rows=8))
    configs = {arm: size.config(name, at.length, DROPOUT, **options) for arm, (name, options) in ARMS.items()}
    data = random_batch(size.vocab_size, at.rows, at.length)
    steps = {arm: partial(our_step(config), *data) for arm, config in configs.items()}
    raced = bench.race("steps", steps, TURNS, until=0.7)
    peaks = {}
    for i, (arm, config) in enumerate(configs.items()):
        peaks[arm] = peak_of_step("ours", config, at.rows)
        bench.part(f"memory of {arm}", 0.7 + 0.3 * (i + 1) / len(configs))
    flops = {arm: config.flops() for arm, config in configs.items()}
    return Price(size=size, setting=at, steps=raced, peaks=peaks, flops=flops)


def show(price: Price) -> Shown:
    """Make the table and the plot."""
    rows = [
        [
            arm,
            f"{price.work(arm):.2f}",
            ratio(price.time(arm)),
            f"{price.time(arm).median / price.work(arm):.2f}",
            megabytes(price.peaks[arm]),
            f"{price.memory(arm):.2f}",
        ]
        for arm in ARMS
    ]
    text = f"A training step with dropout {DROPOUT:g} ({price.size}; {price.setting}), as multiples of standard's.\n\n"
    header = ["", "FLOPs", "time", "time over FLOPs", "peak memory of a step", "memory"]
    series = []
    for i, (name, values) in enumerate(
        {
            "FLOPs": [price.work(arm) for arm in ARMS],
            "time": [price.time(arm).median for arm in ARMS],
            "memory": [price.memory(arm) for arm in ARMS],
        }.items()
    ):
        shift, width = beside(3, i)
        series.append(Series(name=name, x=[j + shift for j in range(len(ARMS))], y=values, style="bars", width=width))
    panel = Panel(
        x_label="", y_label="times standard", series=series, ticks=dict(enumerate(ARMS)), levels={"standard": 1.0}
    )
    figure = Figure(name="price", title="Price of boosting", caption="Multiples of standard attention", panels=[panel])
    return Shown(text=text + table(header, rows), figures=[figure])


PRICE = Section(name="price", title="Price of boosting", minutes=2, result=Price, measure=measure, show=show)
