"""What width, depth and tokens bring for what they cost, from perplexities and costs made by hand."""

import math
from dataclasses import replace

import pytest

from boosted_attention.lab.experiments.language.rewards import (
    DEEP,
    ELASTICITY,
    EXPERIMENT,
    LONG,
    OVER,
    STANDARD,
    WIDE,
    elasticity,
    own,
    timings,
    trials,
)
from boosted_attention.lab.work.timing import StepRatios
from tests.lab.experiments.made import TEXT, check, language_result, percent, row, text_results

SEEDS = (11, 12, 13)
PRESET = replace(TEXT, text=replace(TEXT.text, reward_seeds=SEEDS))
VALUES = {STANDARD: (50.0, 51.0, 52.0), WIDE: (45.0, 45.5, 47.0), DEEP: (50.5, 51.0, 52.6), LONG: (44.0, 45.0, 46.0)}
FLOPS = {STANDARD: 1_000_000, WIDE: 2_000_000, DEEP: 1_500_000, LONG: 1_000_000}
TIMES = {STANDARD: 1.0, WIDE: 1.6, DEEP: 1.4}


def arm_of(options):
    return WIDE if "d_model" in options else DEEP if "n_layers" in options else STANDARD


def made():
    one = own(PRESET)

    def result(corpus, options, i):
        assert corpus == "stdlib"  # the first text alone
        arm = arm_of(options)
        return language_result(VALUES[arm][i], flops_per_token=FLOPS[arm])

    plain = text_results(one, result, {timings(one).key: StepRatios(measured=TIMES)})
    longer = text_results(
        one, lambda c, o, i: language_result(VALUES[LONG][i], steps=6, tokens=384, flops_per_token=10**6)
    )
    return lambda trial: (longer if trial.config["training"]["steps"] == 6 else plain)(trial)


def test_elasticities_are_per_cent_of_perplexity_per_per_cent_of_cost():
    """Twice the cost and a hundredth less perplexity: ln(0.99) / ln(2)."""
    found = elasticity({1: 99.0, 2: 50.0}, {1: 100.0, 2: 100.0}, 2.0)
    assert found == {1: pytest.approx(math.log(0.99) / math.log(2)), 2: pytest.approx(-1.0)}


def test_every_investment_is_charged_its_own_flops_and_time():
    table = EXPERIMENT.table(PRESET, made())
    standard = VALUES[STANDARD]
    costs = {WIDE: (2.0, 1.6), DEEP: (1.5, 1.4), LONG: (2.0, 2.0)}
    for name, (flops, time) in costs.items():
        check(table, {OVER[name].quantity.on("stdlib"): percent(VALUES[name], standard)})
        for kind, cost in (("FLOPs", flops), ("time", time)):
            expected = [math.log(a / b) / math.log(cost) for a, b in zip(VALUES[name], standard, strict=True)]
            check(table, {ELASTICITY[name, kind].on("stdlib"): expected})
        shown = row(table, f"{name} | stdlib")
        assert shown[2:4] == [100 * (flops - 1), 100 * (time - 1)]
    assert row(table, f"{STANDARD} | stdlib") == [51.0, 0.0, 0.0, 0.0, None, None]


def test_its_seeds_are_its_own_and_its_rates_the_recipes():
    wanted = [t for t in trials(PRESET) if t.work == "language.train"]
    assert {t.config["training"]["seed"] for t in wanted} == set(SEEDS)
    base = PRESET.text.configuration().training
    assert {t.config["training"]["lr"] for t in wanted} == {base.lr}
    assert sorted(t.config["training"]["steps"] for t in wanted) == [3] * 9 + [6] * 3
    layers = {t.config["model"]["n_layers"] for t in wanted}
    assert layers == {4, 6}


def test_the_figure_shows_both_costs():
    results = made()
    assert EXPERIMENT.figure is not None
    figure = EXPERIMENT.figure(PRESET, EXPERIMENT.table(PRESET, results), results)
    assert [panel.y_label for panel in figure.panels] == [
        "% of perplexity per % of FLOPs",
        "% of perplexity per % of time",
    ]
    assert [list((panel.ticks or {}).values()) for panel in figure.panels] == [[WIDE, DEEP, LONG]] * 2
