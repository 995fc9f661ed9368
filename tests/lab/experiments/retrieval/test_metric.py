"""Accuracy against squared error, from scores made by hand."""

from boosted_attention.lab.experiments.retrieval.metric import DRAWS, EXPERIMENT, OVER_MAP, SIZES
from boosted_attention.retrieval.scoring import Baselines
from boosted_attention.retrieval.task import Score
from tests.lab.experiments.made import RETRIEVAL, check, retrieval, row, verdicts

RIGHT = {1: (40.0, 41.0, 42.0, 43.0), 2: (50.0, 52.0, 54.0, 56.0)}


def baselines(task):
    if task["pattern_seed"] == 42:  # the paper's patterns
        assert (task["d"], task["n_patterns"], task["sigma"]) == (64, 16, 0.5)
        return Baselines(chance=Score(6.0, 0.9), raw=Score(59.0, 16.0), map=Score(60.0, 0.8), bayes=Score(58.0, 0.5))
    value = task["d"] + task["pattern_seed"] / 10
    return Baselines(**dict.fromkeys(("chance", "raw", "map"), Score(-1.0, -1.0)), bayes=Score(value, value / 2))


def made():
    return EXPERIMENT.table(RETRIEVAL, retrieval(lambda config: RIGHT[config["model"]["n_rounds"]], baselines))


def test_bayes_and_the_query_are_measured_against_map():
    check(
        made(),
        {
            OVER_MAP["Bayes", "accuracy"]: -2.0,
            OVER_MAP["Bayes", "mse"]: 0.5 - 0.8,
            OVER_MAP["raw query", "accuracy"]: -1.0,
            OVER_MAP["raw query", "mse"]: 15.2,
        },
    )


def test_rows_are_predictors_models_and_other_patterns():
    table = made()
    assert row(table, "chance") == [6.0, 0.9]
    assert row(table, "raw query") == [59.0, 16.0]
    assert row(table, "MAP") == [60.0, 0.8]
    assert row(table, "Bayes") == [58.0, 0.5]
    assert row(table, "M=1") == [41.5, 0.415]
    assert row(table, "M=2") == [53.0, 0.53]
    middle = sum(DRAWS) / len(DRAWS) / 10
    for d, k in SIZES:
        shown = row(table, f"Bayes over 8 other sets of patterns, d={d} K={k}")
        assert shown == [d + middle, (d + middle) / 2]
    assert verdicts(EXPERIMENT, table) == {}
