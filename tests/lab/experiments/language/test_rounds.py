"""Rounds and gates in the language model, from perplexities made by hand."""

import pytest

from boosted_attention.lab.experiments.language.rounds import (
    EXPERIMENT,
    M_3,
    NO_GATE,
    ONE,
    SCALAR_GATE,
    SECOND,
    SECOND_OVER_THIRD,
    THIRD,
    TWO,
    VECTOR_OVER_NONE,
    VECTOR_OVER_SCALAR,
)
from tests.lab.experiments.made import TEXT, check, minus, percent, perplexities, row, shifted, verdicts

VALUES = {
    ONE: (70.0, 71.0, 70.5),
    TWO: (65.0, 66.2, 65.4),
    M_3: (64.0, 65.0, 64.8),
    NO_GATE: (66.0, 66.9, 66.4),
    SCALAR_GATE: (64.5, 66.0, 65.0),
}


def arm_of(options):
    extra = options.get("attention_options", {})
    by_options = {"{}": TWO, "{'n_rounds': 3}": M_3, "{'gate': 'none'}": NO_GATE, "{'gate': 'scalar'}": SCALAR_GATE}
    return ONE if options["attention"] == "standard" else by_options[str(extra)]


def made(*tables):
    return EXPERIMENT.table(TEXT, perplexities(TEXT, dict(zip(TEXT.text.corpora, tables, strict=True)), arm_of))


def test_every_step_is_measured_from_the_one_before():
    other = shifted(VALUES, 30.0)
    table = made(VALUES, other)
    for text, v in (("stdlib", VALUES), ("wikitext-103", other)):
        second, third = percent(v[TWO], v[ONE]), percent(v[M_3], v[TWO])
        check(
            table,
            {
                SECOND.quantity.on(text): second,
                THIRD.quantity.on(text): third,
                SECOND_OVER_THIRD.on(text): minus(second, third),
                VECTOR_OVER_NONE.quantity.on(text): percent(v[TWO], v[NO_GATE]),
                VECTOR_OVER_SCALAR.quantity.on(text): percent(v[TWO], v[SCALAR_GATE]),
            },
        )
        assert [row(table, f"{arm} | {text}")[0] for arm in v] == [sum(own) / 3 for own in v.values()]


@pytest.mark.parametrize(
    ("two", "three", "gain", "enough"),
    [
        (65.0, 64.0, "reproduced", "reproduced"),
        (69.0, 60.0, "reproduced", "contradicted"),
        (75.0, 70.0, "contradicted", "contradicted"),
    ],
)
def test_both_parts_are_judged_by_sign(two, three, gain, enough):
    moved = {**VALUES, TWO: (two, two + 1.1, two + 0.4), M_3: (three, three + 1.0, three + 0.6)}
    found = verdicts(EXPERIMENT, made(moved, VALUES), "stdlib")
    assert found == {"lm-rounds-gain": gain, "lm-rounds-enough": enough}
