"""Trees beside attention, from accuracies made by hand."""

from dataclasses import replace

import pytest

from boosted_attention.lab.experiments.retrieval.trees import (
    ACCURACY,
    AFTER,
    CEILING,
    DEEP,
    EARLY,
    EXPERIMENT,
    OVER_TREES,
    SMALL,
)
from boosted_attention.retrieval.scoring import RetrievalResult
from boosted_attention.retrieval.task import Score
from tests.lab.experiments.made import RETRIEVAL, check, ledger, minus, of_config, row, untrained, verdicts

PRESET = replace(RETRIEVAL, tree_seeds=3, tree_rounds=50)
ATTENTION = {1: (70.0, 71.0, 70.5, 69.0), 2: (75.0, 76.0, 75.5, 74.0)}
TREES = {  # rounds, one per seed
    SMALL: {m: tuple(60.0 + m / 10 + seed for seed in range(3)) for m in AFTER[SMALL]},
    DEEP: {1: (70.0, 70.5, 71.0), 2: (74.0, 74.8, 75.0), 3: (74.5, 75.0, 76.0), 4: (73.0, 75.5, 75.0)},
}


def results(trees=TREES):
    def answer(work, config):
        task = config["task"]
        assert (task["d"], task["n_patterns"], task["sigma"]) == (16, 4, 0.5)
        if work == "retrieval.baselines":
            return untrained(bayes=80.0)
        if work == "retrieval.trees":
            kind = DEEP if config["trees"]["max_leaves"] is None else SMALL
            assert config["trees"]["n_rounds"] == config["after"][-1]
            assert config["training"]["steps"] == 150
            return {m: scored(trees[kind][m][config["seed"]]) for m in config["after"]}
        values = ATTENTION[config["model"]["n_rounds"]]
        return {
            seed: RetrievalResult(accuracy=value, mse=value / 100, rounds=[])
            for seed, value in zip(config["seeds"], values, strict=True)
        }

    return of_config(answer)


def scored(value):
    return Score(accuracy=value, mse=value / 100)


def made(trees=TREES):
    return EXPERIMENT.table(PRESET, results(trees))


def test_trees_are_compared_with_attention_of_their_own_seeds():
    table = made()
    for kind, by_rounds in TREES.items():
        check(table, {ACCURACY[kind, m]: values for m, values in by_rounds.items()})
    check(table, {OVER_TREES[m]: minus(ATTENTION[m][:3], TREES[SMALL][50]) for m in (1, 2)})
    best = [max(values[seed] for values in TREES[DEEP].values()) for seed in range(3)]
    halves = [(a + b) / 2 for a, b in zip(TREES[DEEP][1], best, strict=True)]
    check(table, {EARLY: minus(TREES[DEEP][3], halves)})
    assert (table.quantities[CEILING].mean, CEILING.paper) == (80.0, 80.7)
    assert row(table, "deep trees, 1 round") == [70.5, 0.705]
    assert row(table, "attention, M=2") == [75.125, 0.75125]


@pytest.mark.parametrize(("third", "verdict"), [(74.5, "reproduced"), (70.1, "contradicted")])
def test_three_rounds_are_judged_by_half_of_what_rounds_bring(third, verdict):
    deep = {**TREES[DEEP], 3: (third, third + 0.5, third + 1.2)}
    assert verdicts(EXPERIMENT, made({**TREES, DEEP: deep})) == {"trees-early": verdict}


def test_without_trees_the_table_says_so():
    def without(trial):
        if trial.work == "retrieval.trees":
            raise KeyError(trial.key)
        return results()(trial)

    table = EXPERIMENT.table(PRESET, without)
    assert list(table.rows) == ["Bayes", "attention, M=1", "attention, M=2"]
    assert table.notes[0] == f"Not run: {SMALL}, {DEEP}; they need scikit-learn."
    (judged,) = ledger(EXPERIMENT, table).rows
    assert (judged.verdict, judged.remark) == ("not run", f"{DEEP} were not run")
    assert [series.name for series in EXPERIMENT.figure(PRESET, table, without).panels[0].series] == ["attention"]
    assert all(trial.work != "retrieval.trees" for trial in EXPERIMENT.required(PRESET))


def test_a_preset_may_end_earlier():
    table = EXPERIMENT.table(replace(PRESET, tree_rounds=3), results())
    assert [label for label in table.rows if label.startswith(SMALL)] == [f"{SMALL}, 1 round", f"{SMALL}, 2 rounds"]
    assert [label for label in table.rows if label.startswith(DEEP)][-1] == f"{DEEP}, 3 rounds"
