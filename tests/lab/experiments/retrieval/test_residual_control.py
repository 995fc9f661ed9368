"""What later rounds look at, from accuracies made by hand."""

import pytest

from boosted_attention.lab.experiments.retrieval.residual_control import (
    ESTIMATE,
    EXPERIMENT,
    HALF_GAIN_OVER_PARALLEL,
    PARALLEL,
    RESIDUAL,
    RESIDUAL_OVER,
)
from tests.lab.experiments.made import RETRIEVAL, check, minus, retrieval, row, verdicts

ONE = (40.0, 41.0, 39.0, 40.5)
RIGHT = {  # rule of the model, rounds
    ("error", 2): (55.0, 56.0, 55.5, 54.5),
    ("error", 3): (57.0, 58.5, 57.5, 56.5),
    ("input", 2): (42.0, 43.5, 42.5, 41.5),
    ("input", 3): (46.0, 45.5, 44.5, 43.5),
    ("estimate", 2): (50.0, 51.5, 50.5, 49.0),
    ("estimate", 3): (52.0, 53.5, 51.5, 51.0),
}
RULE = {RESIDUAL: "error", PARALLEL: "input", ESTIMATE: "estimate"}


def made(right=RIGHT):
    def of(config):
        model = config["model"]
        return ONE if model["n_rounds"] == 1 else right[model["residual"], model["n_rounds"]]

    return EXPERIMENT.table(RETRIEVAL, retrieval(of))


def test_the_residual_is_compared_with_the_other_rules():
    table = made()
    for m in (2, 3):
        for label in (PARALLEL, ESTIMATE):
            check(table, {RESIDUAL_OVER[label, m]: minus(RIGHT["error", m], RIGHT[RULE[label], m])})
        half = [(a + b) / 2 for a, b in zip(RIGHT["error", m], ONE, strict=True)]
        check(table, {HALF_GAIN_OVER_PARALLEL[m]: minus(half, RIGHT["input", m])})
    for label, rule in RULE.items():
        assert row(table, label) == [sum(RIGHT[rule, m]) / 4 for m in (2, 3)]


@pytest.mark.parametrize(
    ("parallel", "over", "half"),
    [(42.0, "reproduced", "reproduced"), (52.0, "reproduced", "contradicted"), (60.0, *["contradicted"] * 2)],
)
def test_half_the_gain_is_more_than_any_gain(parallel, over, half):
    right = {**RIGHT, ("input", 2): [parallel + v / 100 for v in RIGHT["input", 2]]}
    assert verdicts(EXPERIMENT, made(right)) == {"rounds-residual": over, "rounds-key": half}
