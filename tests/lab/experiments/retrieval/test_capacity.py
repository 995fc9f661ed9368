"""Gains by size and noise, from accuracies made by hand."""

import pytest

from boosted_attention.lab.experiments.retrieval.capacity import (
    ACCURACY,
    EXPERIMENT,
    GAIN,
    GROWTH,
    LARGE,
    MIDDLE,
    MORE_PATTERNS,
    OVER_HALF,
    PLACES,
    SIGMAS,
    SIZES,
    SMALL,
)
from tests.lab.experiments.made import RETRIEVAL, check, minus, retrieval, row, untrained, verdicts

ONE = {place: [20.0 + i, 21.5 + i, 20.5 + i, 21.0 + i] for i, place in enumerate(PLACES)}
BAYES = {place: 50.0 + i for i, place in enumerate(PLACES)}
GAINS = {  # what a second round adds, by size and noise; seeds differ by a little
    **{(SMALL, sigma): g for sigma, g in zip(SIGMAS, (14.6, 20.0, 9.0, 1.0), strict=True)},
    **{(MIDDLE, sigma): g for sigma, g in zip(SIGMAS, (17.8, 19.0, 8.0, 2.0), strict=True)},
    **{(LARGE, sigma): g for sigma, g in zip(SIGMAS, (13.5, 18.0, 7.0, 3.0), strict=True)},
}


def second(gains, place):
    return [v + gains[place] + small for v, small in zip(ONE[place], (0.1, -0.1, 0.2, -0.2), strict=True)]


def made(gains=GAINS):
    def place_of(task):
        return (task["d"], task["n_patterns"]), task["sigma"]

    def of(config):
        place = place_of(config["task"])
        return {1: ONE[place], 2: second(gains, place)}[config["model"]["n_rounds"]]

    return EXPERIMENT.table(RETRIEVAL, retrieval(of, lambda task: untrained(bayes=BAYES[place_of(task)])))


def test_gains_growth_and_gaps_are_of_their_own_place():
    table, two = made(), {place: second(GAINS, place) for place in PLACES}
    gain = {place: minus(two[place], ONE[place]) for place in PLACES}
    check(table, {GAIN[place]: gain[place] for place in PLACES})
    for size in SIZES:
        for low, high in ((0.3, 0.5), (0.5, 0.8), (0.8, 1.2)):
            check(table, {GROWTH[size, low, high]: minus(gain[size, high], gain[size, low])})
        here = size, 0.5
        half = [(v + BAYES[here]) / 2 for v in ONE[here]]
        check(table, {OVER_HALF[size]: minus(two[here], half)})
    check(table, {MORE_PATTERNS: minus(gain[LARGE, 0.3], gain[SMALL, 0.3])})
    check(table, {ACCURACY[*place, "Bayes"]: BAYES[place] for place in PLACES})
    check(table, {ACCURACY[*place, "M=1"]: ONE[place] for place in PLACES})
    check(table, {ACCURACY[*place, "M=2"]: two[place] for place in PLACES})


def test_rows_are_sizes_and_columns_are_noises():
    table = made()
    assert table.columns == [f"sigma={sigma}" for sigma in SIGMAS]
    assert row(table, f"{MIDDLE} Bayes") == [BAYES[MIDDLE, sigma] for sigma in SIGMAS]
    assert row(table, f"{LARGE} M=1") == [20.75 + PLACES.index((LARGE, sigma)) for sigma in SIGMAS]
    assert row(table, f"{SMALL} M=2") == [
        20.75 + PLACES.index((SMALL, sigma)) + GAINS[SMALL, sigma] for sigma in SIGMAS
    ]


def test_the_papers_own_figures_deny_its_sentence_on_patterns():
    """It gives a smaller gain for 32 patterns than for 8."""
    found = verdicts(EXPERIMENT, made())
    assert found.pop("capacity-patterns") == "contradicted"
    assert set(found.values()) == {"reproduced"}


@pytest.mark.parametrize(("large", "verdict"), [(30.0, "reproduced"), (14.6, "cannot tell"), (5.0, "contradicted")])
def test_patterns_are_judged_by_the_sign(large, verdict):
    assert verdicts(EXPERIMENT, made({**GAINS, (LARGE, 0.3): large}))["capacity-patterns"] == verdict


def test_gains_the_other_way_contradict_it():
    found = verdicts(EXPERIMENT, made({place: -gain for place, gain in GAINS.items()}))
    assert found["capacity-patterns"] == "reproduced"
    others = {id for id in found if id not in ("capacity-patterns",) and not id.endswith("-size")}
    assert {found[id] for id in others} == {"contradicted"}
    assert {verdict for id, verdict in found.items() if id.endswith("-size")} == {"not reproduced"}
