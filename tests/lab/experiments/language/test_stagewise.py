"""Rounds of language models trained together and one after the other, from perplexities made by hand."""

import pytest

from boosted_attention.lab.experiments.language.stagewise import (
    EXPERIMENT,
    ONE,
    OVER_STAGES,
    STAGES_OVER_ONE,
    STAGES_TWO,
    TOGETHER_TWO,
)
from tests.lab.experiments.made import TEXT, check, language_result, percent, row, shifted, text_results, verdicts

VALUES = {ONE: (70.0, 71.0, 70.5), TOGETHER_TWO: (65.0, 66.2, 65.4), STAGES_TWO: (68.0, 69.9, 68.6)}


def made(*tables, without=()):
    by_text = dict(zip(TEXT.text.corpora, tables, strict=True))

    def results(trial):
        two = STAGES_TWO if trial.config["training"].get("stagewise", False) else TOGETHER_TWO

        def value(corpus, options, i):
            arm = ONE if options["attention"] == "standard" else two
            return None if arm in without else language_result(by_text[corpus][arm][i])

        return text_results(TEXT, value)(trial)

    return EXPERIMENT.table(TEXT, results)


def test_both_ways_are_compared_on_every_text():
    other = shifted(VALUES, 30.0)
    table = made(VALUES, other)
    for text, v in (("stdlib", VALUES), ("wikitext-103", other)):
        over, gain = percent(v[TOGETHER_TWO], v[STAGES_TWO]), percent(v[STAGES_TWO], v[ONE])
        check(table, {OVER_STAGES.quantity.on(text): over, STAGES_OVER_ONE.quantity.on(text): gain})
        assert [row(table, f"{arm} | {text}")[0] for arm in v] == [sum(own) / 3 for own in v.values()]


@pytest.mark.parametrize(("by", "verdict"), [(0.0, "reproduced"), (-10.0, "contradicted")])
def test_the_claim_is_judged_by_sign(by, verdict):
    moved = {**VALUES, STAGES_TWO: [v + by for v in VALUES[STAGES_TWO]]}
    assert verdicts(EXPERIMENT, made(moved, VALUES), "stdlib") == {"lm-stagewise-2": verdict}


def test_what_was_not_run_is_said():
    table = made(VALUES, VALUES, without=(STAGES_TWO,))
    assert table.missing[OVER_STAGES.quantity.on("stdlib")] == f"{STAGES_TWO} was not run"
