"""Perplexity against rounds taken, from results made by hand."""

from boosted_attention.analysis.halting import TOKEN_KINDS, RoundsTaken
from boosted_attention.lab.experiments.language.halting import (
    EXPERIMENT,
    FIXED,
    HALTING,
    MOST,
    OVER,
    PRICES,
    counted,
    trials,
)
from tests.lab.experiments.made import CORPORA, SEEDS, TEXT, check, language_result, percent, row, text_results

FOUR = (50.0, 51.0, 52.0)
HALTED = {price: tuple(value + 1 + i for value in FOUR) for i, price in enumerate(PRICES)}


def made():
    def result(corpus, options, i):
        of_layer = options.get("attention_options", {})
        if of_layer.get("halting"):
            return language_result(HALTED[options.get("ponder_cost", 0.01)][i])
        return language_result(FOUR[i] if of_layer.get("n_rounds") == MOST else 60.0 + i)

    taken = {}
    for corpus in CORPORA:
        for price, name in zip(PRICES, HALTING, strict=True):
            for i, trial in enumerate(counted(TEXT, corpus, name).values()):
                kinds = {kind: 1.0 + i for kind in TOKEN_KINDS if kind != "space"}
                taken[trial.key] = RoundsTaken(mean=2.0 + i + price, layers=[1.0], kinds=kinds)
    return text_results(TEXT, result, taken)


def test_every_price_is_compared_with_all_rounds_and_shown_with_its_own():
    table = EXPERIMENT.table(TEXT, made())
    for price, name, over in zip(PRICES, HALTING, OVER, strict=True):
        check(table, {over.quantity.on("stdlib"): percent(HALTED[price], FOUR)})
        shown = row(table, f"{name} | stdlib")
        assert shown[1] == 3.0 + price
        assert shown[2:] == [2.0, 2.0, 2.0, 2.0, None]
    assert row(table, f"{MOST} rounds | stdlib")[:3] == [51.0, MOST, None]
    assert row(table, "standard | stdlib")[1] == 1


def test_counts_build_on_the_trainings_of_the_same_seed():
    every = trials(TEXT)
    trained = {t.key: t for t in every if t.work == "language.train"}
    counts = [t for t in every if t.work == "language.halting"]
    assert len(trained) == len(CORPORA) * len(SEEDS) * (len(FIXED) + len(HALTING))
    assert len(counts) == len(CORPORA) * len(SEEDS) * len(HALTING)
    for one in counts:
        assert trained[one.after[0]].config == one.config["model"]
        assert one.config["model"]["model"]["attention_options"]["halting"]


def test_the_figure_has_the_fixed_numbers_as_a_line():
    results = made()
    assert EXPERIMENT.figure is not None
    panel = EXPERIMENT.figure(TEXT, EXPERIMENT.table(TEXT, results), results).panels[0]
    line, *points = panel.series
    assert list(line.x) == [1, 2, MOST]
    assert [p.name for p in points] == list(HALTING)
