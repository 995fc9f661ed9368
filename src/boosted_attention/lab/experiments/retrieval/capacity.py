"""Appendix C: the gain of a second round over sizes and noise; the paper leaves out sigma = 1.2."""

from __future__ import annotations

import itertools

from boosted_attention.chart import Figure, Panel, beside, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.retrieval import rounds
from boosted_attention.lab.experiments.retrieval._shared import (
    accuracy,
    baseline_trial,
    baselines,
    boosted,
    constant,
    halfway,
    minus,
    task,
    trained_models,
    training_trial,
)
from boosted_attention.lab.judging.claim import Claim, Role, claim
from boosted_attention.lab.judging.facts import GROWS_WITH_DIFFICULTY, TWO_ROUNDS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity, difference
from boosted_attention.lab.judging.table import BySeed, Paired, Table, cell, exactly, over_seeds
from boosted_attention.lab.judging.verdicts import above, below, number
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Gain of M=2 over M=1 by size and noise: accuracy (%) (Appendix C)"
SMALL, MIDDLE, LARGE = SIZES = ((32, 8), (64, 16), (128, 32))
SIGMAS = (0.3, 0.5, 0.8, 1.2)
PAPER_GAIN = {(MIDDLE, 0.3): 17.8, (SMALL, 0.3): 14.6, (LARGE, 0.3): 13.5}
PAPER_AT_HALF = rounds.GAIN[2].paper  # the same model at sigma = 0.5, from the table of rounds
PLACES = [(size, sigma) for size in SIZES for sigma in SIGMAS]
ACCURACY = {
    (size, sigma, label): Quantity(f"{size} {label} | sigma={sigma}")
    for size, sigma in PLACES
    for label in ("Bayes", "M=1", "M=2")
}
GAIN = {(size, sigma): Quantity(f"gain {size} sigma={sigma}", PAPER_GAIN.get((size, sigma))) for size, sigma in PLACES}
GROWTH = {
    (size, low, high): Quantity(f"gain at sigma={high} - at {low}, {size}")
    for size in SIZES
    for low, high in itertools.pairwise(SIGMAS)
}
OVER_HALF = {size: Quantity(f"M=2 - halfway to Bayes, {size} sigma=0.5") for size in SIZES}
MORE_PATTERNS = difference(GAIN[LARGE, 0.3], GAIN[SMALL, 0.3], f"gain {LARGE} - gain {SMALL}, sigma=0.3")


def trials(preset: Preset) -> list[Trial]:
    chosen = []
    for size, sigma in PLACES:
        here = task(*size, sigma)
        chosen += [baseline_trial(preset, here), *(training_trial(preset, here, boosted(m)) for m in (1, 2))]
    return chosen


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [f"sigma={sigma}" for sigma in SIGMAS])
    bayes: dict[tuple[tuple[int, int], float], float] = {}
    right: dict[tuple[tuple[int, int], float, int], BySeed] = {}
    for size, sigma in PLACES:
        here = task(*size, sigma)
        bayes[size, sigma] = baselines(results, baseline_trial(preset, here)).bayes.accuracy
        for m in (1, 2):
            right[size, sigma, m] = accuracy(trained_models(results, training_trial(preset, here, boosted(m))))
    for size in SIZES:
        ceiling = [cell(ACCURACY[size, sigma, "Bayes"], exactly(bayes[size, sigma])) for sigma in SIGMAS]
        table.add_row(f"{size} Bayes", ceiling)
        for m in (1, 2):
            cells = [cell(ACCURACY[size, sigma, f"M={m}"], over_seeds(right[size, sigma, m])) for sigma in SIGMAS]
            table.add_row(f"{size} M={m}", cells)
    gain = {place: minus(right[*place, 2], right[*place, 1]) for place in PLACES}
    pairs = [Paired(GAIN[place], right[*place, 2], right[*place, 1]) for place in PLACES]
    pairs += [Paired(growth, gain[size, high], gain[size, low]) for (size, low, high), growth in GROWTH.items()]
    for size in SIZES:
        one, two = (right[size, 0.5, m] for m in (1, 2))
        pairs.append(Paired(OVER_HALF[size], two, halfway(one, constant(bayes[size, 0.5], one))))
    pairs.append(Paired(MORE_PATTERNS, gain[LARGE, 0.3], gain[SMALL, 0.3]))
    table.compare(pairs)
    return table


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    where = {float(j): f"{sigma}" for j, sigma in enumerate(SIGMAS)}
    panels = []
    for size in SIZES:
        series = []
        for i, (label, name) in enumerate((("M=1", "M=1"), ("M=2", "M=2"), ("Bayes", "Bayes predictor"))):
            offset, width = beside(3, i)
            estimates = [table.quantities[ACCURACY[size, sigma, label]] for sigma in SIGMAS]
            series.append(measured(name, [x + offset for x in where], estimates, "bars", width))
        title = f"d={size[0]}, K={size[1]}"
        panels.append(Panel(x_label="noise sigma", y_label="accuracy (%)", series=series, title=title, ticks=where))
    series = []
    for i, size in enumerate(SIZES):
        offset, width = beside(3, i)
        gains = [table.quantities[GAIN[size, sigma]] for sigma in SIGMAS]
        name = f"gain, d={size[0]}, K={size[1]}"
        series.append(measured(name, [x + offset for x in where], gains, "bars", width))
    title = "What M=2 adds to M=1"
    panels.append(Panel(x_label="noise sigma", y_label="gain (points)", series=series, title=title, ticks=where))
    return Figure(
        name="capacity",
        title=f"Retrieval by size and noise, {preset.steps} steps",
        caption="The paper's Figure 8, with sigma = 1.2 and the gains themselves.",
        panels=panels,
    )


def of_one_gain(size: tuple[int, int], sigma: float) -> list[Claim]:
    gain, where = GAIN[size, sigma], f"{size} sigma={sigma}"
    shown = f"{gain.paper:+}"
    return [
        claim(
            f"capacity-{size[1]}",
            GROWS_WITH_DIFFICULTY,
            gain,
            above(),
            f"A second round helps at d, K = {where}.",
            paper=shown,
            role=Role.ASIDE,
        ),
        claim(
            f"capacity-{size[1]}-size",
            GROWS_WITH_DIFFICULTY,
            gain,
            number(),
            f"A second round gains {gain.paper} points at d, K = {where}.",
            paper=shown,
        ),
    ]


CLAIMS = [
    claim(
        "capacity-patterns",
        GROWS_WITH_DIFFICULTY,
        MORE_PATTERNS,
        above(),
        "The benefit grows with the number of patterns.",
        paper=f"{PAPER_GAIN[LARGE, 0.3]} against {PAPER_GAIN[SMALL, 0.3]}",
    ),
    claim(
        "capacity-noise",
        GROWS_WITH_DIFFICULTY,
        GROWTH[MIDDLE, 0.3, 0.5],
        above(),
        f"The benefit grows with the noise up to sigma = 0.5, at d, K = {MIDDLE}.",
        paper=f"grows (+{PAPER_GAIN[MIDDLE, 0.3]} to {PAPER_AT_HALF:+})",
    ),
    claim(
        "capacity-fades",
        GROWS_WITH_DIFFICULTY,
        GROWTH[MIDDLE, 0.5, 0.8],
        below(),
        f"At sigma = 0.8 the gain is smaller than at 0.5, at d, K = {MIDDLE}.",
        section="App. C",
        paper="diminishes",
        role=Role.ASIDE,
    ),
    *(
        claim(
            f"capacity-gap-{size[1]}",
            TWO_ROUNDS,
            OVER_HALF[size],
            above(),
            f"Two rounds close most of the gap to Bayes at sigma = 0.5 and d, K = {size}: more than half.",
            section="App. C",
            paper="most",
            role=Role.ASIDE,
        )
        for size in SIZES
    ),
    *(made for size, sigma in PAPER_GAIN for made in of_one_gain(size, sigma)),
]

EXPERIMENT = Experiment(
    name="capacity",
    title=TITLE,
    kind=Kind.SYNTHETIC,
    order=50,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    by_default=True,
)
