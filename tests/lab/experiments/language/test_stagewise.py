"""Rounds of language models trained together and one after the other, from perplexities made by hand."""

import pytest

from boosted_attention.lab.experiments.language.stagewise import (
    EXPERIMENT,
    M_3,
    OF_THREE,
    OF_TWO,
    ONE,
    THREE_STAGES,
    TWO,
    TWO_STAGES,
)
from tests.lab.experiments.made import TEXT, check, language_result, percent, row, shifted, text_results, verdicts

VALUES = {
    ONE: (70.0, 71.0, 70.5),
    TWO: (65.0, 66.2, 65.4),
    M_3: (64.0, 65.0, 64.8),
    TWO_STAGES: (68.0, 69.9, 68.6),
    THREE_STAGES: (67.5, 69.0, 68.1),
}


def made(*tables):
    by_text = dict(zip(TEXT.text.corpora, tables, strict=True))

    def results(trial):
        stages = trial.config["training"].get("stagewise", False)
        three, two = (THREE_STAGES, TWO_STAGES) if stages else (M_3, TWO)

        def value(corpus, options, i):
            arm = ONE if options["attention"] == "standard" else three if "attention_options" in options else two
            return language_result(by_text[corpus][arm][i])

        return text_results(TEXT, value)(trial)

    return EXPERIMENT.table(TEXT, results)


def test_both_ways_are_compared_on_every_text():
    other = shifted(VALUES, 30.0)
    table = made(VALUES, other)
    for text, v in (("stdlib", VALUES), ("wikitext-103", other)):
        check(
            table,
            {
                OF_TWO.quantity.on(text): percent(v[TWO], v[TWO_STAGES]),
                OF_THREE.quantity.on(text): percent(v[M_3], v[THREE_STAGES]),
            },
        )
        assert [row(table, f"{arm} | {text}")[0] for arm in v] == [sum(own) / 3 for own in v.values()]


@pytest.mark.parametrize(("by", "verdict"), [(0.0, "reproduced"), (-10.0, "contradicted")])
def test_both_parts_are_judged_by_sign(by, verdict):
    moved = {arm: [v + by * (arm in (TWO_STAGES, THREE_STAGES)) for v in own] for arm, own in VALUES.items()}
    found = verdicts(EXPERIMENT, made(moved, VALUES), "stdlib")
    assert found == {"lm-stagewise-2": verdict, "lm-stagewise-3": verdict}
