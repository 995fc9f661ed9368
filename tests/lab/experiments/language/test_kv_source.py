"""Keys and values of the correction, from perplexities made by hand."""

import pytest

from boosted_attention.lab.experiments.language.kv_source import (
    EXPERIMENT,
    FROM_INPUT,
    OF_ROUND_0,
    OVER_INPUT,
    OVER_SHARED,
    PERPLEXITY,
    RESIDUAL,
    VALIDATION,
)
from tests.lab.experiments.made import (
    PAPERS_TEXT,
    TEXT,
    WILD,
    check,
    language_result,
    minus,
    papers,
    perplexities,
    row,
    shifted,
    text_results,
    verdicts,
)

VALUES = {RESIDUAL: (67.85, 68.0, 67.9), FROM_INPUT: (69.2, 69.4, 69.3), OF_ROUND_0: (71.0, 71.3, 71.5)}
ARM = {"boosted": RESIDUAL, "boosted-input": FROM_INPUT, "boosted-shared": OF_ROUND_0}


def arm_of(options):
    return ARM[options["attention"]]


def made(*tables):
    return EXPERIMENT.table(TEXT, perplexities(TEXT, dict(zip(TEXT.text.corpora, tables, strict=True)), arm_of))


def test_test_and_validation_perplexity_are_kept_apart():
    other = shifted(VALUES, 30.0)
    table = made(VALUES, other)
    for text, v in (("stdlib", VALUES), ("wikitext-103", other)):
        check(table, {PERPLEXITY[arm].on(text): v[arm] for arm in (RESIDUAL, FROM_INPUT)})
        check(table, {VALIDATION[arm].on(text): [value + 1000 for value in v[arm]] for arm in (RESIDUAL, FROM_INPUT)})
        check(
            table,
            {
                OVER_INPUT.on(text): minus(v[RESIDUAL], v[FROM_INPUT]),
                OVER_SHARED.on(text): minus(v[RESIDUAL], v[OF_ROUND_0]),
            },
        )
        mean = sum(v[OF_ROUND_0]) / 3
        assert row(table, f"{OF_ROUND_0} | {text}") == [mean, mean + 1000, 1.0, 2.0]


@pytest.mark.parametrize(("by", "verdict"), [(0.0, "reproduced"), (-3.0, "contradicted")])
def test_the_residual_is_judged_by_sign(by, verdict):
    moved = {**VALUES, FROM_INPUT: [v + by for v in VALUES[FROM_INPUT]]}
    assert verdicts(EXPERIMENT, made(moved, VALUES), "stdlib") == {"lm-kv-residual": verdict}


def test_numbers_like_the_papers_reproduce_it():
    def result(corpus, options, i):
        test = VALUES[arm_of(options)][i]
        made = language_result(test)
        best = type(made.best)(step=1, validation_loss=1.0, validation_perplexity=test + 0.2)  # as in the paper
        return language_result(test, best=best)

    table = EXPERIMENT.table(PAPERS_TEXT, text_results(PAPERS_TEXT, result))
    found = verdicts(EXPERIMENT, table, "wikitext-103")
    assert set(found.values()) == {"reproduced"}
    assert len(found) == len(EXPERIMENT.claims)
    assert papers(table, f"{RESIDUAL} | wikitext-103")[0] == 67.9
    assert papers(table, f"{RESIDUAL} | openwebtext")[0] is None


def test_an_arm_that_diverged_fails_and_one_that_was_not_run_is_missing():
    for gone, verdict, why in ((WILD, "failed", "diverged"), (None, "not run", "not run")):

        def result(corpus, options, i, gone=gone):
            arm = arm_of(options)
            return gone if (arm, i) == (FROM_INPUT, 1) else language_result(VALUES[arm][i])

        table = EXPERIMENT.table(PAPERS_TEXT, text_results(PAPERS_TEXT, result))
        reasons = table.failed if gone else table.missing
        assert reasons[VALIDATION[FROM_INPUT].on("wikitext-103")] == why
        assert reasons[PERPLEXITY[FROM_INPUT].on("wikitext-103")] == why
        found = verdicts(EXPERIMENT, table, "wikitext-103")
        without = {"lm-kv-residual", "lm-kv-size", "lm-kv-input", "lm-kv-input-val"}
        assert {id for id, verdict_of in found.items() if verdict_of == verdict} == without
        check(table, {VALIDATION[RESIDUAL].on("wikitext-103"): [value + 1000 for value in VALUES[RESIDUAL]]})


def test_only_the_papers_main_model_is_a_mean_of_two_runs():
    runs = {c.id: c.criterion.runs for c in EXPERIMENT.claims if c.criterion.rule == "number"}
    assert runs == {"lm-kv-size": 1, "lm-kv-input": 1, "lm-kv-residual-val": 2, "lm-kv-input-val": 1}
    rivals = {c.id: c.criterion.rival for c in EXPERIMENT.claims if c.criterion.rule == "number"}
    assert rivals == {"lm-kv-size": 0.0, "lm-kv-input": 67.9, "lm-kv-residual-val": 69.5, "lm-kv-input-val": 68.1}
