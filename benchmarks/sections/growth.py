"""Growth: how the time of a boosted step grows with length, width, rounds and depth, beside how its FLOPs grow."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.bench import Bench
from benchmarks.ours import Size, our_step, random_batch
from benchmarks.race import Race
from benchmarks.section import Section, Shown, table
from benchmarks.sections.steps import Setting
from boosted_attention.chart import Figure, Panel, Series

BASE, AT, ROUNDS = Size(d_model=128, n_layers=2, n_heads=4, vocab_size=1024), Setting(length=256, rows=4), 2
SWEEPS: dict[str, tuple[int, ...]] = {
    "T": (256, 512, 1024, 2048),
    "d": (64, 128, 256, 512),
    "M": (2, 3, 4, 6),
    "layers": (1, 2, 4, 8),
}
QUICK_SWEEPS: dict[str, tuple[int, ...]] = {"T": (16, 32), "d": (16, 32), "M": (2, 3), "layers": (1, 2)}
TURNS = 5


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Steps of models that differ in one number; candidates are named by it."""

    values: list[int]
    flops: list[int]  # of a forward pass over the batch
    steps: Race

    def times(self) -> list[float]:
        """Return the median time of each value."""
        return [self.steps.median(str(value)) for value in self.values]


@dataclass(frozen=True, kw_only=True)
class Growth:
    """A sweep for each number."""

    size: Size
    setting: Setting
    sweeps: dict[str, Sweep]


def exponent(x: list[int], y: list[float]) -> float:
    """Return the slope of the least-squares line through log x and log y."""
    log_x, log_y = [math.log(v) for v in x], [math.log(v) for v in y]
    mean_x, mean_y = sum(log_x) / len(x), sum(log_y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(log_x, log_y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in log_x)


def measure(bench: Bench) -> Growth:
    """Time the models of each sweep in turns."""
    sweeps, found = QUICK_SWEEPS if bench.quick else SWEEPS, {}
    for i, (option, values) in enumerate(sweeps.items()):
        steps, flops = {}, []
        for value in values:
            size, length, rounds = BASE, AT.length, ROUNDS
            if option == "T":
                length = value
            elif option == "M":
                rounds = value
            else:
                size = replace(BASE, **{"d": {"d_model": value}, "layers": {"n_layers": value}}[option])
            config = size.config("boosted", length, 0.0, n_rounds=rounds)
            steps[str(value)] = partial(our_step(config), *random_batch(size.vocab_size, AT.rows, length))
            flops.append(config.flops() * AT.rows * length)
        race = bench.race(f"growth in {option}", steps, TURNS, until=(i + 1) / len(sweeps))
        found[option] = Sweep(values=list(values), flops=flops, steps=race)
    return Growth(size=BASE, setting=AT, sweeps=found)


def show(growth: Growth) -> Shown:
    """Make the table and the plots."""
    rows, panels = [], []
    for option, sweep in growth.sweeps.items():
        times = sweep.times()
        expected = exponent(sweep.values, [float(count) for count in sweep.flops])
        rows.append(
            [option, ", ".join(map(str, sweep.values)), f"{exponent(sweep.values, times):.2f}", f"{expected:.2f}"]
        )
        panels.append(
            Panel(
                title=option,
                x_label=option,
                y_label="times the first",
                series=[
                    Series(name="time", x=sweep.values, y=[t / times[0] for t in times]),
                    Series(name="FLOPs", x=sweep.values, y=[c / sweep.flops[0] for c in sweep.flops], style="dashes"),
                ],
                ticks={float(value): str(value) for value in sweep.values},
                log_x=True,
                from_zero=True,
            )
        )
    text = (
        f"A boosted step without dropout; what is not varied is {growth.size}, {growth.setting}, M={ROUNDS}. Exponents "
        "are slopes of lines through logarithms, of the times and of `flops()` at the same values.\n\n"
    )
    figure = Figure(name="growth", title="Growth", caption="Time and FLOPs of a boosted step", panels=panels)
    return Shown(text=text + table(["", "values", "exponent of time", "of FLOPs"], rows), figures=[figure])


GROWTH = Section(name="growth", title="Growth", minutes=0.6, result=Growth, measure=measure, show=show)
