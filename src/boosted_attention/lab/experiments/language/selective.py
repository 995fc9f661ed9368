"""Boosting only some layers: those whose corrections are missed most, against as many at random."""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import BOOSTED, PLAIN, STANDARD, rate_of
from boosted_attention.lab.experiments.language._shared import (
    add_arms,
    by_seed,
    compare_arms,
    read,
    relative,
    require_alike,
    short,
    text_table,
    training_trials,
)
from boosted_attention.lab.experiments.language._trials import derived_trial, importance_trial
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import BEATS_STANDARD
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Boosting only the layers that matter"
WHOLE = {name: PLAIN[name] for name in (STANDARD, BOOSTED)}
CHOSEN, RANDOM = "chosen layers", "random layers"
CHOICES = {CHOSEN: "importance", RANDOM: "random"}
HOW = {CHOSEN: "by what the boosted model loses without them", RANDOM: "at random"}
OVER_RANDOM, OVER_BOOSTED, OVER_STANDARD = (relative(CHOSEN, other) for other in (RANDOM, BOOSTED, STANDARD))


def worth(preset: Preset, corpus: str, seed: int) -> Trial:
    """What the choice rests on: the worth of the boosted model's corrections, on validation text."""
    return importance_trial(preset, corpus, PLAIN[BOOSTED], seed)


def selected(preset: Preset, corpus: str, seed: int, name: str) -> Trial:
    options = {"choose": CHOICES[name]}
    before, rate = worth(preset, corpus, seed), rate_of(preset, PLAIN[BOOSTED])
    return derived_trial(preset, corpus, seed, name, "language.train-selected", before, options, rate)


def trials(preset: Preset) -> list[Trial]:
    places = [(corpus, seed) for corpus in preset.text.corpora for seed in preset.text.seeds]
    parts = [selected(preset, *place, name) for place in places for name in CHOICES]
    return [*training_trials(preset, WHOLE), *(worth(preset, *place) for place in places), *parts]


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, WHOLE)
        for name in CHOICES:
            found.add(by_seed(results, name, {s: selected(preset, corpus, s, name) for s in preset.text.seeds}))
        require_alike(found, corpus)
        add_arms(table, preset, corpus, found)
        compare_arms(table, preset, corpus, found, (OVER_RANDOM, OVER_BOOSTED, OVER_STANDARD))
        for name, how in HOW.items():
            if name not in found:
                continue
            picked = [f"seed {seed}: {result.layers}" for seed, result in found[name].items()]
            table.notes.append(f"{short(preset, corpus)}, layers chosen {how}: {', '.join(picked)}.")
    return table


CLAIMS = [
    claim(
        "lm-selective",
        BEATS_STANDARD,
        OVER_STANDARD.quantity,
        below(),
        "Boosting only the layers that matter has a lower perplexity than standard attention.",
        section="8",
        paper="suggested",
        role=Role.CONTROL,
    ),
    claim(
        "lm-selective-random",
        BEATS_STANDARD,
        OVER_RANDOM.quantity,
        below(),
        "Boosting the layers that matter has a lower perplexity than boosting as many others.",
        section="8",
        paper="suggested",
        role=Role.CONTROL,
    ),
]

EXPERIMENT = Experiment(
    name="lm-selective", title=TITLE, kind=Kind.LANGUAGE, order=180, trials=trials, collect=collect, claims=CLAIMS
)
