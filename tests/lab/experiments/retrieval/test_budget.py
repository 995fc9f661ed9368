"""Rounds against training budget, from accuracies made by hand: one number per budget, rounds and seed."""

import pytest

from boosted_attention.lab.experiments.retrieval.budget import (
    ACCURACY,
    EXPERIMENT,
    FAST,
    GAIN,
    LONGER,
    LONGER_FAST,
    LONGEST,
    PAPERS,
    training,
)
from boosted_attention.lab.presets import PRESETS
from tests.lab.experiments.made import RETRIEVAL, check, minus, retrieval, row, untrained, verdicts

# steps, learning rate, rounds: accuracies, of as many seeds as the budget has
RIGHT = {
    (150, 3e-3, 1): (10, 11, 12, 14),
    (150, 3e-3, 2): (20, 22, 21, 23),
    (150, 3e-3, 3): (30, 31, 33, 32),
    (150, 2e-2, 1): (15, 16, 17, 19),
    (150, 2e-2, 2): (25, 27, 26, 28),
    (150, 2e-2, 3): (35, 36, 38, 37),
    (600, 3e-3, 1): (40, 41, 42),
    (600, 3e-3, 2): (50, 53, 51),
    (600, 3e-3, 3): (60, 61, 64),
    (600, 2e-2, 1): (45, 46, 47),
    (600, 2e-2, 2): (55, 58, 56),
    (3000, 3e-3, 1): (70, 71, 72),
    (3000, 3e-3, 2): (80, 82, 84),
}
BUDGETS = {PAPERS: (150, 3e-3), FAST: (150, 2e-2), LONGER: (600, 3e-3), LONGER_FAST: (600, 2e-2), LONGEST: (3000, 3e-3)}


def made(right=RIGHT):
    def of(config):
        settings = config["training"]
        return right[settings["steps"], settings["lr"], config["model"]["n_rounds"]]

    return EXPERIMENT.table(RETRIEVAL, retrieval(of, lambda task: untrained(bayes=58.5)))


def test_every_gain_is_over_one_round_of_the_same_budget():
    table = made()
    for (budget, m), quantity in ACCURACY.items():
        values, one = RIGHT[*BUDGETS[budget], m], RIGHT[*BUDGETS[budget], 1]
        check(table, {quantity: values} | ({GAIN[budget, m]: minus(values, one)} if m > 1 else {}))


def test_rows_are_budgets_and_bayes():
    table = made()
    assert row(table, PAPERS) == [11.75, 21.5, 31.5]
    assert row(table, LONGER_FAST) == [46, 169 / 3, None]
    assert row(table, LONGEST) == [71, 82, None]
    assert row(table, "Bayes") == [58.5] * 3
    assert list(table.rows) == [*BUDGETS, "Bayes"]


@pytest.mark.parametrize(("sign", "verdict"), [(1, "reproduced"), (-1, "contradicted")])
def test_the_longest_training_decides(sign, verdict):
    longest = {3000: 100}
    right = {key: [sign * v + longest.get(key[0], 0) for v in values] for key, values in RIGHT.items()}
    others = {key: values if key[0] != 3000 else right[key] for key, values in RIGHT.items()}
    assert verdicts(EXPERIMENT, made(others)) == {"rounds-converged": verdict}


@pytest.mark.parametrize("name", PRESETS)
def test_budgets_are_longer_than_the_papers_whatever_the_preset(name):
    preset = PRESETS[name]
    steps = {budget: options.get("steps", preset.steps) for budget, options in training(preset).items()}
    assert steps[PAPERS] == steps[FAST] == preset.steps < steps[LONGER] == steps[LONGER_FAST] <= steps[LONGEST]
