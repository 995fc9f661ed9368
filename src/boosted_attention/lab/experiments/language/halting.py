"""How many rounds? Tokens that decide for themselves, at several prices, beside fixed numbers of rounds.

Corrections share round 0's keys and values, so that no query is computed for a token that has stopped. The question is
ours, and the table describes: no claim rests on it. The mechanism is adaptive computation time
(``attention/halting.py``).
"""

from __future__ import annotations

from collections.abc import Mapping

from boosted_attention.analysis.halting import TOKEN_KINDS, RoundsTaken
from boosted_attention.chart import Figure, Panel, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import PLAIN, STANDARD, Arm
from boosted_attention.lab.experiments.language._shared import (
    compare_arms,
    describe_places,
    halting_trials,
    note_diverged,
    perplexity,
    read,
    relative,
    rounds_taken_in,
    row_label,
    short,
    text_table,
    training_trials,
)
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.table import Cell, Table, exactly, over_seeds
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "How many rounds? Tokens that decide for themselves"
MOST = 4  # rounds
PRICES = (1e-4, 1e-3, 1e-2)  # of a round in the training loss


def shared(n_rounds: int, **options: object) -> dict[str, object]:
    return {"attention": "boosted-shared", "attention_options": {"n_rounds": n_rounds, **options}}


FIXED: dict[str, Arm] = {
    STANDARD: PLAIN[STANDARD],
    **{f"{n} rounds": shared(n) if n > 2 else {"attention": "boosted-shared"} for n in (2, MOST)},
}
N_ROUNDS = {STANDARD: 1, "2 rounds": 2, f"{MOST} rounds": MOST}
HALTING: dict[str, Arm] = {
    f"up to {MOST} rounds at {price:g} each": {**shared(MOST, halting=True), "ponder_cost": price} for price in PRICES
}
ARMS = {**FIXED, **HALTING}
OVER = [relative(name, f"{MOST} rounds") for name in HALTING]
COLUMNS = ["test perplexity", "mean rounds", *TOKEN_KINDS]


def counted(preset: Preset, corpus: str, name: str) -> dict[int, Trial]:
    """What counts the rounds of a model that halts, by seed."""
    return halting_trials(preset, corpus, HALTING[name], name)


def trials(preset: Preset) -> list[Trial]:
    counts = [t for corpus in preset.text.corpora for name in HALTING for t in counted(preset, corpus, name).values()]
    return [*training_trials(preset, ARMS), *counts]


def row(tested: Mapping[int, float], name: str, taken: Mapping[int, RoundsTaken]) -> list[Cell | None]:
    """Perplexity, mean rounds, and those of every kind of token; one number of rounds where it is fixed."""
    if not taken:
        return [Cell(over_seeds(tested)), Cell(exactly(N_ROUNDS[name])), *[None] * len(TOKEN_KINDS)]
    means = over_seeds({seed: found.mean for seed, found in taken.items()})
    by_kind = [{seed: f.kinds[kind] for seed, f in taken.items() if kind in f.kinds} for kind in TOKEN_KINDS]
    return [
        Cell(over_seeds(tested)),
        Cell(means),
        *(Cell(over_seeds(values)) if values else None for values in by_kind),
    ]


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, COLUMNS)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, ARMS)
        for name, by_seed in found.items():
            taken = rounds_taken_in(results, counted(preset, corpus, name)) if name in HALTING else {}
            table.add_row(row_label(preset, corpus, name), row(perplexity(by_seed), name, taken))
        compare_arms(table, preset, corpus, found, OVER)
        note_diverged(table, preset, corpus, found)
    table.notes.append(
        f"Corrections share keys and values; rounds are those of a token in a layer, {MOST} at most, on "
        f"{preset.text.analysed_sequences} sequences of test text, by the kind of the token that is read."
    )
    return table


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    panels = []
    for corpus in preset.text.corpora:
        rows = {arm: table.rows[label] for arm in ARMS if (label := row_label(preset, corpus, arm)) in table.rows}
        points = {arm: (cells[1].ours, cells[0].ours) for arm, cells in rows.items() if cells[0] and cells[1]}
        fixed = sorted((points[arm] for arm in FIXED if arm in points), key=lambda point: point[0].mean)
        series = [measured("fixed numbers of rounds", [x.mean for x, _ in fixed], [y for _, y in fixed])]
        series += [measured(arm, [points[arm][0].mean], [points[arm][1]], "points") for arm in HALTING if arm in points]
        panels.append(
            Panel(x_label="mean rounds", y_label="test perplexity", series=series, title=short(preset, corpus))
        )
    return Figure(
        name="halting",
        title="Perplexity against rounds taken",
        caption=f"Not in the paper: below the line, deciding by token pays. {describe_places(table)}",
        panels=panels,
    )


EXPERIMENT = Experiment(
    name="lm-halting", title=TITLE, kind=Kind.LANGUAGE, order=185, trials=trials, collect=collect, figure=figure
)
