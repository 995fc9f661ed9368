"""Boosting some layers only, from perplexities made by hand."""

import pytest

from boosted_attention.lab.experiments.language.selective import (
    CHOSEN,
    EXPERIMENT,
    OVER_BOOSTED,
    OVER_RANDOM,
    OVER_STANDARD,
    RANDOM,
    selected,
    worth,
)
from tests.lab.experiments.made import TEXT, WILD, check, language_result, percent, row, text_results, verdicts

VALUES = {
    "standard": (70.0, 71.0, 70.5),
    "boosted": (65.0, 66.0, 65.2),
    CHOSEN: (66.0, 67.5, 66.4),
    RANDOM: (68.0, 69.0, 68.7),
}
LAYERS = {CHOSEN: [1, 3], RANDOM: [0, 2]}


def made(values=VALUES, wild=()):
    others = {
        selected(TEXT, corpus, seed, name).key: language_result(
            values[name][i] + 10 * n, layers=LAYERS[name], data=corpus, order=f"{seed}, 3"
        )
        for n, corpus in enumerate(TEXT.text.corpora)
        for i, seed in enumerate(TEXT.text.seeds)
        for name in LAYERS
    }
    others |= {selected(TEXT, "stdlib", TEXT.text.seeds[1], name).key: WILD for name in LAYERS if name in wild}

    def result(corpus, options, i):
        if corpus == "stdlib" and options["attention"] in wild and i == 1:
            return WILD
        return language_result(values[options["attention"]][i] + 10 * TEXT.text.corpora.index(corpus))

    return EXPERIMENT.table(TEXT, text_results(TEXT, result, others))


def test_chosen_layers_are_compared_with_random_all_and_none():
    table = made()
    for n, text in enumerate(TEXT.text.corpora):
        v = {arm: [value + 10 * n for value in own] for arm, own in VALUES.items()}
        check(
            table,
            {
                OVER_RANDOM.quantity.on(text): percent(v[CHOSEN], v[RANDOM]),
                OVER_BOOSTED.quantity.on(text): percent(v[CHOSEN], v["boosted"]),
                OVER_STANDARD.quantity.on(text): percent(v[CHOSEN], v["standard"]),
            },
        )
        assert [row(table, f"{arm} | {text}")[0] for arm in v] == [sum(own) / 3 for own in v.values()]
    assert "stdlib, layers chosen by what the boosted model loses without them: seed 42: [1, 3]" in table.notes[1]
    assert "stdlib, layers chosen at random: seed 42: [0, 2]" in table.notes[2]


def test_the_choice_builds_on_the_worth_of_corrections_of_its_own_seed_and_text():
    for corpus in TEXT.text.corpora:
        for seed in TEXT.text.seeds:
            for name, choose in ((CHOSEN, "importance"), (RANDOM, "random")):
                trial = selected(TEXT, corpus, seed, name)
                assert (trial.work, trial.config["choose"]) == ("language.train-selected", choose)
                assert (trial.config["training"]["seed"], trial.config["data"]["corpus"]) == (seed, corpus)
                assert trial.after == (worth(TEXT, corpus, seed).key,)


@pytest.mark.parametrize(
    ("chosen", "standard", "random"),
    [(66.0, "reproduced", "reproduced"), (69.3, "reproduced", "contradicted"), (80.0, *["contradicted"] * 2)],
)
def test_both_claims_are_judged_by_sign(chosen, standard, random):
    moved = {**VALUES, CHOSEN: (chosen, chosen + 1.1, chosen + 0.6), RANDOM: (68.0, 69.1, 68.7)}
    found = verdicts(EXPERIMENT, made(moved), "stdlib")
    assert found == {"lm-selective": standard, "lm-selective-random": random}


@pytest.mark.parametrize(
    ("wild", "standard", "random"),
    [
        ((RANDOM,), "reproduced", "failed"),
        ((CHOSEN,), "failed", "failed"),
        (("boosted", CHOSEN, RANDOM), "failed", "failed"),  # as what builds on a model that diverged
    ],
)
def test_what_diverged_fails_on_its_text_alone_and_is_named(wild, standard, random):
    table = made(wild=wild)
    assert verdicts(EXPERIMENT, table, "stdlib") == {"lm-selective": standard, "lm-selective-random": random}
    assert set(verdicts(EXPERIMENT, table, "wikitext-103").values()) == {"reproduced"}
    assert table.failed[OVER_RANDOM.quantity.on("stdlib")].endswith("diverged")
    for arm in wild:
        assert f"stdlib, {arm} diverged and has no row: seed 123: step 7: loss NaN." in table.notes
        assert f"{arm} | stdlib" not in table.rows
    told = [note for note in table.notes if note.startswith("stdlib, layers chosen")]
    assert len(told) == 2 - len(set(wild) & set(LAYERS))
