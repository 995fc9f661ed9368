"""Learned routing, from scores made by hand."""

from dataclasses import replace

import pytest

from boosted_attention.lab.experiments.retrieval.routing import (
    EXPERIMENT,
    ITERATED_OVER_CHANCE,
    ROUTED_OVER_ONE_STEP,
    SEES,
    SENT,
    trials,
)
from boosted_attention.lab.presets import PRESETS
from boosted_attention.retrieval.routing import RoutingResult
from boosted_attention.retrieval.task import Score
from tests.lab.experiments.made import RETRIEVAL, check, of_config, row, verdicts

SMALL = (0.01, -0.02, 0.03, -0.01)  # by seed


def made(sent=99.9, routed=0.1, converged=6.25):
    """What gates see is told by the tens of the accuracy, seeds by SMALL."""

    def of(work, config):
        return {
            features: {
                seed: RoutingResult(
                    one_step=Score(10.0 * i + SMALL[seed], 1.0),
                    routed=Score(10.0 * i + routed + 2 * SMALL[seed], 2.0),
                    converged=Score(converged + i - 4 + SMALL[seed], 3.0),
                    weight_on_one_step=0.5 + i / 100,
                    chose_one_step=sent - i / 100 + SMALL[seed],
                )
                for seed in config["seeds"]
            }
            for i, features in enumerate(SEES)
        }

    return EXPERIMENT.table(RETRIEVAL, of_config(of))


def test_every_gate_is_read_by_what_it_sees():
    table = made()
    for i, features in enumerate(SEES):
        check(
            table,
            {
                SENT[features]: [99.9 - i / 100 + s for s in SMALL],
                ROUTED_OVER_ONE_STEP[features]: [0.1 + s for s in SMALL],
            },
        )
        mean = sum(SMALL) / 4
        assert row(table, features) == [10 * i + mean, 10 * i + 0.1 + 2 * mean, 50 + i, 99.9 - i / 100 + mean]
    check(table, {ITERATED_OVER_CHANCE: SMALL})  # 16 patterns; the last set of features has the converged accuracy


def test_gates_that_always_take_one_step_reproduce_it():
    assert set(verdicts(EXPERIMENT, made()).values()) == {"reproduced"}


def test_gates_that_do_not_contradict_it():
    found = verdicts(EXPERIMENT, made(sent=60.0, routed=3.0, converged=40.0))
    assert set(found.values()) == {"contradicted"}
    assert len(found) == 2 * len(SEES) + 1
    only_sent = verdicts(EXPERIMENT, made(sent=60.0))
    assert {only_sent[f"routing-{features}"] for features in SEES} == {"contradicted"}
    assert {only_sent[f"routing-{features}-accuracy"] for features in SEES} == {"reproduced"}


@pytest.mark.parametrize("name", PRESETS)
def test_more_seeds_and_steps_are_expected_to_take_longer(name):
    preset = PRESETS[name]

    def seconds(**changes):
        return trials(replace(preset, **changes))[0].seconds

    assert 0 < seconds() < seconds(seeds=preset.seeds + 1)
    assert seconds() < seconds(steps=preset.steps + 1)
