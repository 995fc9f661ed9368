"""Related systems (Section 7): blocks that are repeated, and layers fed with all earlier ones, beside boosting.

The paper sets itself apart from these systems and does not measure them. The Universal Transformer has the standard
model's blocks, applied up to three times, so that it takes more FLOPs than the boosted model. At the start of training
tokens stop after two repeats: from there they may learn to take fewer or more.
"""

from __future__ import annotations

from contextlib import suppress

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import (
    ATTENTION_RESIDUALS,
    BOOSTED,
    DEEP_CROSS,
    PLAIN,
    STANDARD,
    UNIVERSAL,
)
from boosted_attention.lab.experiments.language._shared import (
    add_arms,
    compare_arms,
    described,
    halting_trials,
    on_first_text,
    read,
    relative,
    rounds_taken_in,
    short,
    text_table,
    training_trials,
)
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import OWN_PROJECTIONS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.table import Table, interval, over_seeds
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Related systems: repeated blocks, and layers fed with all earlier ones (Section 7)"
SYSTEMS = (UNIVERSAL, DEEP_CROSS, ATTENTION_RESIDUALS)
ARMS = {arm: PLAIN[arm] for arm in (STANDARD, BOOSTED, *SYSTEMS)}
OVER = {system: relative(BOOSTED, system) for system in SYSTEMS}
GAINS = {system: relative(system, STANDARD) for system in SYSTEMS}


def counted(preset: Preset, corpus: str) -> dict[int, Trial]:
    """What counts the repeats that tokens take in the Universal Transformer, by seed."""
    return halting_trials(preset, corpus, ARMS[UNIVERSAL], UNIVERSAL)


def trials(preset: Preset) -> list[Trial]:
    counts = [trial for corpus in preset.text.corpora for trial in counted(preset, corpus).values()]
    return [*training_trials(preset, ARMS), *counts]


def describe_repeats(preset: Preset, results: Results, corpus: str) -> list[str]:
    """How many repeats tokens take, where that was counted."""
    with suppress(KeyError):  # not there yet
        taken = rounds_taken_in(results, counted(preset, corpus))
        found = interval(over_seeds({seed: one.mean for seed, one in taken.items()}), 2)
        return [f"{short(preset, corpus)}: tokens take {found} of {ARMS[UNIVERSAL]['n_repeats']} repeats."]
    return []


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, ARMS)
        add_arms(table, preset, corpus, found)
        compare_arms(table, preset, corpus, found, [*OVER.values(), *GAINS.values()])
        table.notes += described(preset, corpus, found, ARMS)
        if UNIVERSAL in found:
            table.notes += describe_repeats(preset, results, corpus)
    table.notes.append(
        "Universal Transformer: the standard model's blocks up to three times, with adaptive computation time, which "
        "weighs the states of each token, and without an embedding of the repeat; FLOPs are those of all repeats, "
        "which training computes for every token. DeepCrossAttention and Attention Residuals: the standard model's "
        "blocks, each fed with a learned mixture of all that embeddings and layers before it gave."
    )
    return table


CLAIMS = [
    claim(
        "lm-own-projections",
        OWN_PROJECTIONS,
        OVER[UNIVERSAL].quantity,
        below(),
        "Boosted attention has a lower perplexity than a Universal Transformer that applies the standard model's "
        "blocks up to three times.",
        paper="not tested",
    )
]

EXPERIMENT = Experiment(
    name="lm-related",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=168,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    needed=on_first_text(lambda preset: training_trials(preset, ARMS)),
)
