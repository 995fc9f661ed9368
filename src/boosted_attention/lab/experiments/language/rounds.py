"""Rounds and gates in the language model."""

from __future__ import annotations

from collections.abc import Mapping

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import BOOSTED, PLAIN, SCALAR, STANDARD, THREE, UNGATED, Arm
from boosted_attention.lab.experiments.language._shared import (
    add_arms,
    compare_arms,
    described,
    on_first_text,
    read,
    relative,
    text_table,
    training_trials,
)
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import TWO_ROUNDS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Paired, Table
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Rounds and gates in the language model"
ONE, TWO, M_3, NO_GATE, SCALAR_GATE = "M=1", "M=2", "M=3", "M=2, no gate", "M=2, scalar gate"
ARMS: dict[str, Arm] = {
    ONE: PLAIN[STANDARD],
    TWO: PLAIN[BOOSTED],
    M_3: PLAIN[THREE],
    NO_GATE: PLAIN[UNGATED],
    SCALAR_GATE: PLAIN[SCALAR],
}
SECOND, THIRD = relative(TWO, ONE), relative(M_3, TWO)
SECOND_OVER_THIRD = Quantity("(M=2 - M=1) - (M=3 - M=2)")


class SecondOverThird:
    """How much more the second round changes perplexity than the third, in percent."""

    quantity = SECOND_OVER_THIRD
    arms = (ONE, TWO, M_3)

    def of(self, values: Mapping[str, BySeed]) -> Paired:
        """The comparison, from every arm's perplexity."""
        return Paired(self.quantity, SECOND.of(values).a, THIRD.of(values).a)


VECTOR_OVER_NONE = relative(TWO, NO_GATE, name="vector gate - no gate")
VECTOR_OVER_SCALAR = relative(TWO, SCALAR_GATE, name="vector gate - scalar gate")
COMPARED = (SECOND, THIRD, SecondOverThird(), VECTOR_OVER_NONE, VECTOR_OVER_SCALAR)


def trials(preset: Preset) -> list[Trial]:
    return training_trials(preset, ARMS)


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, ARMS)
        add_arms(table, preset, corpus, found)
        compare_arms(table, preset, corpus, found, COMPARED)
        table.notes += described(preset, corpus, found, ARMS)
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
    name="lm-rounds",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=150,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    needed=on_first_text(trials),
)
