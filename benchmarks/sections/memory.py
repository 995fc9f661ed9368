"""Peak memory of a boosted training step against length and batch, ours and the plain model's."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.ours import PAPER, TINY, Size
from benchmarks.peak import peak_of_step
from benchmarks.section import Section, Shown, megabytes, table
from benchmarks.sections.steps import Setting
from boosted_attention.chart import Figure, Panel, Series

FORM, DROPOUT = "boosted", 0.1
WHO = ("ours", "plain")


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Bytes that a step adds, by who makes it."""

    setting: Setting
    bytes: dict[str, int]

    @property
    def ratio(self) -> float:
        """Ours as a multiple of the plain model's."""
        return self.bytes["ours"] / self.bytes["plain"]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Peaks in all settings."""

    size: Size
    peaks: list[Peak]


def measure(bench: Bench) -> Memory:
    """Find the peak of each setting, each in a process of its own."""
    size, lengths, rows = PAPER, (256, 512, 1024), (2, 4, 8)
    if bench.quick:
        size, lengths, rows = TINY, (16, 32), (1, 2)
    settings = [Setting(length=length, rows=rows[-1]) for length in lengths]
    settings = [*(Setting(length=lengths[-1], rows=n) for n in rows[:-1]), *settings]
    peaks = []
    for i, at in enumerate(settings):
        config = size.config(FORM, at.length, DROPOUT)
        peaks.append(Peak(setting=at, bytes={who: peak_of_step(who, config, at.rows) for who in WHO}))
        bench.part(str(at), (i + 1) / len(settings))
    return Memory(size=size, peaks=peaks)


def show(memory: Memory) -> Shown:
    """Make the table and the plots."""
    rows = [[str(p.setting), *(megabytes(p.bytes[who]) for who in WHO), f"{p.ratio:.2f}"] for p in memory.peaks]
    text = (
        f"What a {FORM} step with dropout {DROPOUT:g} adds to a process that has weights and optimizer in place "
        f"already ({memory.size}): VmHWM during the step minus VmRSS before it, each in a new process.\n\n"
    )
    longest, largest = (max(getattr(p.setting, option) for p in memory.peaks) for option in ("length", "rows"))
    by_length = [p for p in memory.peaks if p.setting.rows == largest]
    by_rows = [p for p in memory.peaks if p.setting.length == longest]
    panels = [
        panel(f"batch {largest}", "length", [p.setting.length for p in by_length], by_length),
        panel(f"length {longest}", "batch", [p.setting.rows for p in by_rows], by_rows),
    ]
    figure = Figure(name="memory", title="Memory", caption="Peak memory of a boosted step", panels=panels)
    return Shown(text=text + table(["", *WHO, "ours over plain"], rows), figures=[figure])


def panel(title: str, x_label: str, x: list[int], peaks: list[Peak]) -> Panel:
    """Draw the peaks against one option."""
    series = [Series(name=who, x=x, y=[p.bytes[who] / 1e6 for p in peaks]) for who in WHO]
    ticks = {float(value): str(value) for value in x}
    return Panel(title=title, x_label=x_label, y_label="MB", series=series, ticks=ticks, from_zero=True)


MEMORY = Section(name="memory", title="Memory of a step", minutes=2, result=Memory, measure=measure, show=show)
