"""A question of ours: rounds of a language model trained one after the other, or all together?"""

from __future__ import annotations

from contextlib import suppress

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import BOOSTED, PLAIN, STANDARD, Arm, seeds_of
from boosted_attention.lab.experiments.language._shared import (
    Found,
    add_arms,
    by_seed,
    compare_arms,
    described,
    on_first_text,
    read,
    relative,
    require_alike,
    text_table,
    training_trials,
)
from boosted_attention.lab.experiments.language._trials import stagewise_trial
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import TOGETHER
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Rounds of the language model trained together and one after the other"
ONE, TOGETHER_TWO, STAGES_TWO = "M=1", "M=2, together", "M=2, one after the other"
JOINT: dict[str, Arm] = {ONE: PLAIN[STANDARD], TOGETHER_TWO: PLAIN[BOOSTED]}
STAGEWISE: dict[str, Arm] = {STAGES_TWO: PLAIN[BOOSTED]}
OVER_STAGES, STAGES_OVER_ONE = relative(TOGETHER_TWO, STAGES_TWO), relative(STAGES_TWO, ONE)


def stages(preset: Preset, corpus: str) -> dict[str, dict[int, Trial]]:
    """The trainings in stages on one text, by arm and seed."""
    return {
        name: {seed: stagewise_trial(preset, corpus, arm, seed, name) for seed in seeds_of(preset, corpus, arm)}
        for name, arm in STAGEWISE.items()
    }


def trials(preset: Preset) -> list[Trial]:
    apart = [
        trial
        for corpus in preset.text.corpora
        for by_seed in stages(preset, corpus).values()
        for trial in by_seed.values()
    ]
    return [*training_trials(preset, JOINT), *apart]


def found_on(preset: Preset, results: Results, corpus: str) -> Found:
    """Results of all arms that are there with all their seeds."""
    found = read(preset, results, corpus, JOINT)
    for name, own in stages(preset, corpus).items():
        with suppress(KeyError):  # not there yet
            found.add(by_seed(results, name, own))
    require_alike(found, corpus)
    return found


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = found_on(preset, results, corpus)
        add_arms(table, preset, corpus, found)
        compare_arms(table, preset, corpus, found, (OVER_STAGES, STAGES_OVER_ONE))
        table.notes += described(preset, corpus, found, {**JOINT, **STAGEWISE})
    table.notes.append(
        "One after the other: round 0 with the whole model, then each correction with its gates alone, then "
        "everything; as many steps as together, divided equally, each phase with the whole schedule."
    )
    return table


CLAIMS = [
    claim(
        "lm-stagewise-2",
        TOGETHER,
        OVER_STAGES.quantity,
        below(),
        "Two rounds trained together have a lower perplexity than two trained one after the other, in as many steps.",
        paper="not tested",
    )
]

EXPERIMENT = Experiment(
    name="lm-stagewise",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=155,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    needed=on_first_text(trials),
)
