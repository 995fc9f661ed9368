"""The paper's open question: does the gain over a matched standard model last as models grow?"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from boosted_attention.chart import Figure, Panel, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments._grid import described
from boosted_attention.lab.experiments.language import sweep
from boosted_attention.lab.experiments.language._arms import BOOSTED, PLAIN, arm_model, matched_arm
from boosted_attention.lab.experiments.language._shared import (
    ALIKE,
    Found,
    against_zero,
    by_seed,
    compare,
    describe_places,
    located,
    note_diverged,
    percent,
    perplexity,
    require_alike,
    short,
    tag,
    text_table,
)
from boosted_attention.lab.experiments.language._trials import preset_steps, training_trial
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import SIZE
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Cell, Table, over_seeds
from boosted_attention.lab.judging.verdicts import SHOWN
from boosted_attention.lab.presets import Preset, UndecidedError
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import planned_steps

TITLE = "The gain over the parameter-matched standard model, by width"
OWN_WIDTH = Quantity("boosted - matched at the preset's width")
BY_WIDTH = Quantity("slope of the gain against log width")
BY_LOSS = Quantity("slope of the difference against the standard model's loss")


def at_width(preset: Preset, width: int) -> Quantity:
    """The gain at one of the widths."""
    own = width == preset.text.configuration().model.d_model
    return OWN_WIDTH if own else Quantity(f"boosted - matched at d={width}")


def widths(preset: Preset) -> list[int]:
    """The preset's width with those of its further sizes, or one below and one above it."""
    d = preset.text.configuration().model.d_model
    return [d, *at_sizes(preset)] if preset.text.sizes else [d // 2, d, 3 * d // 2]


def at_sizes(preset: Preset) -> dict[int, Preset]:
    """The preset at its further sizes, by width."""
    return {one.text.configuration().model.d_model: one for one in map(preset.at, preset.text.sizes)}


def steps(preset: Preset, width: int) -> int | None:
    """Steps for as many tokens per parameter as at the preset's width; None is the preset's own number."""
    base = preset.text.configuration()
    if width == base.model.d_model:
        return None
    here, there = (
        arm_model(preset, {**PLAIN[BOOSTED], "d_model": d}).num_params() for d in (base.model.d_model, width)
    )
    return max(2, round(planned_steps(base.model, base.training, base.data) * there / here))


def pair(preset: Preset, corpus: str, width: int, seed: int) -> tuple[Trial, Trial]:
    """The boosted model of a width, and the standard one with as many parameters."""
    if width in at_sizes(preset):
        return pair(at_sizes(preset)[width], corpus, width, seed)
    own = preset.text.configuration().model.d_model
    boosted = PLAIN[BOOSTED] if width == own else {**PLAIN[BOOSTED], "d_model": width}
    standard = matched_arm(preset, boosted, "parameters")
    n = steps(preset, width)
    return (
        training_trial(preset, corpus, boosted, seed, f"boosted, d={width}", steps=n),
        training_trial(preset, corpus, standard, seed, f"matched, d={width}", steps=n),
    )


def seeds(preset: Preset) -> tuple[int, ...]:
    """The seeds that all widths have."""
    return preset.text.seeds[: min((size.seeds for size in preset.text.sizes), default=None)]


def texts(preset: Preset) -> tuple[str, ...]:
    """The texts of the comparison: the first alone where there are further sizes."""
    return preset.text.corpora[:1] if preset.text.sizes else preset.text.corpora


def pairs(preset: Preset, width: int) -> list[Trial]:
    return [t for corpus in texts(preset) for seed in seeds(preset) for t in pair(preset, corpus, width, seed)]


def trials(preset: Preset) -> list[Trial]:
    sizes = at_sizes(preset)
    listed = [trial for width in widths(preset) if width not in sizes for trial in pairs(preset, width)]
    for width, one in sizes.items():
        listed += sweep.trials(one)
        with suppress(UndecidedError):  # until that sweep is finished
            listed += pairs(preset, width)
    return listed


def needed(preset: Preset) -> list[Trial]:
    """The preset's own width, where there are further sizes, each of which is shown once it is there; or all widths."""
    return pairs(preset, preset.text.configuration().model.d_model) if preset.text.sizes else trials(preset)


def read_width(preset: Preset, results: Results, corpus: str, width: int) -> Found:
    """Both models of a width with all their seeds; nothing where one is not there yet."""
    found = Found()
    with suppress(KeyError, UndecidedError):
        both = {seed: pair(preset, corpus, width, seed) for seed in seeds(preset)}
        boosted, matched = (
            by_seed(results, f"{name}, d={width}", {seed: trials[i] for seed, trials in both.items()})
            for i, name in enumerate(("boosted", "matched"))
        )
        found.add(boosted)
        found.add(matched)
    return found


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, ["boosted", "matched standard", "difference (%)"])
    for corpus in texts(preset):
        found = Found()
        for width in widths(preset):
            found.add(read_width(preset, results, corpus, width))
        require_alike(found, corpus)
        note_diverged(table, preset, corpus, found)
        if found.diverged:
            reason = f"{' and '.join(found.diverged)} diverged"
            table.failed |= {located(preset, corpus, q): reason for q in (OWN_WIDTH, BY_WIDTH, BY_LOSS)}
        else:
            add_widths(table, preset, corpus, found)
    for one in at_sizes(preset).values():
        table.notes += [describe_sweep(one, results, name) for name in sweep.finished(one)]
    for text in set(table.places) - {short(preset, corpus) for corpus in texts(preset)}:
        table.missing |= {q.on(text): "not run" for q in (OWN_WIDTH, BY_WIDTH, BY_LOSS)}
    table.notes.append(
        f"{describe_tokens(preset, table)} Slopes are in percent per e-fold of width, and per nat of loss."
    )
    return table


def describe_tokens(preset: Preset, table: Table) -> str:
    """How long the widths of the table train, which differs as well; and what they share."""
    if not preset.text.sizes:
        return f"Equal tokens per parameter. {ALIKE}"
    trained = {preset.text.configuration().model.d_model: preset, **at_sizes(preset)}
    shown = {
        width: one for width, one in trained.items() if row_of(preset, preset.text.corpora[0], width) in table.rows
    }
    told = ", ".join(f"{preset_steps(one):,} at d={width}" for width, one in shown.items())
    return f"The recipes' own steps, {told}: slopes are of width and training together. {ALIKE}"


def add_widths(table: Table, preset: Preset, corpus: str, found: Found) -> None:
    """A row per width, and how the gain changes from width to width once all are there."""
    gains: dict[int, BySeed] = {}
    strength: dict[int, BySeed] = {}
    there = [width for width in widths(preset) if f"boosted, d={width}" in found]
    for width in there:
        boosted, standard = (perplexity(found[f"{name}, d={width}"]) for name in ("boosted", "matched"))
        gains[width] = percent(boosted, standard)
        strength[width] = {seed: math.log(value) for seed, value in standard.items()}
        cells = [Cell(over_seeds(values)) for values in (boosted, standard, gains[width])]
        table.add_row(row_of(preset, corpus, width), cells)
    compare(table, preset, corpus, [against_zero(at_width(preset, width), gains[width]) for width in there])
    absent = [f"d={width}" for width in widths(preset) if width not in there]
    if absent:
        why = f"{' and '.join(absent)} was not run"
        table.missing |= {located(preset, corpus, q): why for q in (BY_WIDTH, BY_LOSS)}
        return
    by_width = {s: slope([math.log(d) for d in gains], [gains[d][s] for d in gains]) for s in seeds(preset)}
    by_loss = {s: slope([strength[d][s] for d in gains], [gains[d][s] for d in gains]) for s in seeds(preset)}
    # The gain is how far perplexity falls, so that a slope below zero means it fades.
    fading = {s: -value for s, value in by_width.items()}
    compare(table, preset, corpus, [against_zero(BY_WIDTH, fading), against_zero(BY_LOSS, by_loss)])


def row_of(preset: Preset, corpus: str, width: int) -> str:
    return f"d={width}{tag(preset, corpus)}"


def describe_sweep(preset: Preset, results: Results, name: str) -> str:
    """The rates tried for an arm at a further size."""
    points = sweep.points_of(preset, results, preset.text.corpora[0], name)
    width = preset.text.configuration().model.d_model
    return f"d={width}, {name}: validation perplexity by factor on the rates: {described(points)}."


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    panels = []
    for corpus in texts(preset):
        known = {d: row[2] for d in widths(preset) if (row := table.rows.get(row_of(preset, corpus, d))) is not None}
        gains = {d: cell.ours for d, cell in known.items() if cell is not None}
        panels.append(
            Panel(
                x_label="width",
                y_label="boosted against equal parameters (%)",
                series=[measured("ours, 95 % interval", list(gains), list(gains.values()))] if gains else [],
                title=short(preset, corpus),
                ticks={float(d): str(d) for d in gains},
                levels={"no difference": 0.0},
                log_x=True,
            )
        )
    panels += [
        sweep.sweep_panel(one, results, one.text.corpora[0], f"rates at d={d}")
        for d, one in at_sizes(preset).items()
        if sweep.finished(one) == list(sweep.arms(one))
    ]
    return Figure(
        name="scale",
        title="The gain over equal parameters, by width",
        caption=f"The paper's open question: below zero boosted attention is better. {describe_places(table)}",
        panels=panels,
    )


def slope(x: list[float], y: list[float]) -> float:
    """Slope of the least-squares line."""
    return float(np.polyfit(x, y, 1)[0])


CLAIMS = [
    claim(
        "lm-scale",
        SIZE,
        BY_WIDTH,
        SHOWN,
        "Change of the relative gain with the width of the model, in percent per e-fold.",
        paper="open",
    )
]

EXPERIMENT = Experiment(
    name="lm-scale",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=170,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    needed=needed,
)
