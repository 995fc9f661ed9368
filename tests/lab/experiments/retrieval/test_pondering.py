"""Pondering beside one step and rounds, from results made by hand."""

from boosted_attention.lab.experiments.retrieval.pondering import (
    ACCURACY,
    BOOSTED,
    EXPERIMENT,
    OVER_ONE,
    OVER_PONDERING,
)
from boosted_attention.retrieval.pondering import PonderResult
from boosted_attention.retrieval.scoring import RetrievalResult
from tests.lab.experiments.made import RETRIEVAL, check, minus, of_config, row

ROUNDS = {1: (46.0, 45.0, 47.0, 46.5), 4: (56.0, 55.5, 56.5, 56.1)}
PRIORS = {0.2: (50.0, 50.5, 49.5, 51.0), 0.5: (48.0, 47.5, 48.5, 48.1)}


def answer(work, config):
    if work == "retrieval.ponder":
        values = PRIORS[config["model"]["prior"]]
        return {
            s: PonderResult(accuracy=v, mse=v / 100, steps=2.0 + s)
            for s, v in zip(config["seeds"], values, strict=True)
        }
    values = ROUNDS[config["model"]["n_rounds"]]
    return {
        s: RetrievalResult(accuracy=v, mse=v / 100, rounds=[]) for s, v in zip(config["seeds"], values, strict=True)
    }


def test_every_model_has_its_own_row_and_is_compared_with_one_step_and_with_rounds():
    table = EXPERIMENT.table(RETRIEVAL, of_config(answer))
    for prior, values in PRIORS.items():
        name = f"PonderNet, prior {prior:g}"
        check(table, {ACCURACY[name]: values, OVER_ONE[name]: minus(values, ROUNDS[1])})
        check(table, {OVER_PONDERING[name]: minus(ROUNDS[4], values)})
        assert row(table, name)[2] == 3.5
    check(table, {ACCURACY["one step"]: ROUNDS[1], ACCURACY[BOOSTED]: ROUNDS[4]})
    assert [row(table, name)[2] for name in ("one step", BOOSTED)] == [1, 4]
