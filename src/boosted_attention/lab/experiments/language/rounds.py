"""Rounds and gates in the language model."""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._shared import (
    BOOSTED,
    PLAIN,
    STANDARD,
    add_arms,
    compare,
    perplexities,
    read,
    relative,
    text_table,
    training_trials,
)
from boosted_attention.lab.experiments.language._trials import Arm
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import TWO_ROUNDS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Paired, Table
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Rounds and gates in the language model"
ONE, TWO, THREE, UNGATED, SCALAR = "M=1", "M=2", "M=3", "M=2, no gate", "M=2, scalar gate"
ARMS: dict[str, Arm] = {
    ONE: PLAIN[STANDARD],
    TWO: PLAIN[BOOSTED],
    THREE: {**PLAIN[BOOSTED], "attention_options": {"n_rounds": 3}},
    UNGATED: {**PLAIN[BOOSTED], "attention_options": {"gate": "none"}},
    SCALAR: {**PLAIN[BOOSTED], "attention_options": {"gate": "scalar"}},
}
SECOND, THIRD = relative(TWO, ONE), relative(THREE, TWO)
SECOND_OVER_THIRD = Quantity("(M=2 - M=1) - (M=3 - M=2)")
VECTOR_OVER_NONE = relative(TWO, UNGATED, name="vector gate - no gate")
VECTOR_OVER_SCALAR = relative(TWO, SCALAR, name="vector gate - scalar gate")


def trials(preset: Preset) -> list[Trial]:
    return training_trials(preset, ARMS)


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, ARMS)
        add_arms(table, preset, corpus, found)
        values = perplexities(found)
        first, second = SECOND.of(values), THIRD.of(values)
        pairs = [first, second, Paired(SECOND_OVER_THIRD, first.a, second.a)]
        compare(table, preset, corpus, [*pairs, VECTOR_OVER_NONE.of(values), VECTOR_OVER_SCALAR.of(values)])
    return table


CLAIMS = [
    claim(
        "lm-rounds-gain",
        TWO_ROUNDS,
        SECOND.quantity,
        below(),
        "A second round lowers the perplexity of the language model.",
        section="1",
        paper="a benefit",
    ),
    claim(
        "lm-rounds-enough",
        TWO_ROUNDS,
        SECOND_OVER_THIRD,
        below(),
        "The second round lowers the perplexity of the language model by more than the third.",
        section="1",
        paper="most of the benefit",
    ),
]

EXPERIMENT = Experiment(
    name="lm-rounds", title=TITLE, kind=Kind.LANGUAGE, order=150, trials=trials, collect=collect, claims=CLAIMS
)
