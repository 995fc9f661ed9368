"""Sizes and costs, from counts made by hand."""

import pytest

from boosted_attention.lab.experiments.sizes import COST, EXPERIMENT, MORE_PARAMETERS, PARAMETERS
from boosted_attention.lab.work.theory import ModelSize
from tests.lab.experiments.made import RETRIEVAL, check, of_config, papers, row, verdicts

SIZES = {
    "standard": (7_400_000, 10_000_000),
    "twicing": (7_440_000, 12_000_000),
    "wide": (8_800_000, 14_000_000),
    "boosted": (8_732_000, 21_000_000),
    "boosted with three rounds": (10_000_000, 32_000_000),
}


def made(**changed):
    sizes = {name: ModelSize(parameters=p, attention_flops=f) for name, (p, f) in {**SIZES, **changed}.items()}
    return EXPERIMENT.table(RETRIEVAL, of_config(lambda work, config: sizes))


def test_counts_are_in_millions_and_ratios_are_to_standard():
    table = made()
    check(table, {PARAMETERS[name]: p / 1e6 for name, (p, _) in SIZES.items()})
    check(table, {MORE_PARAMETERS: 18.0, COST[2]: 2.1, COST[3]: 3.2})
    assert {name: row(table, name) for name in SIZES} == {name: [p / 1e6, f / 1e6] for name, (p, f) in SIZES.items()}
    assert [papers(table, name)[0] for name in SIZES] == [7.4, 7.4, 8.8, 8.7, None]


def test_numbers_that_round_to_the_papers_reproduce_them():
    found = verdicts(EXPERIMENT, made())
    assert set(found.values()) == {"reproduced"}
    assert len(found) == len(EXPERIMENT.claims)


@pytest.mark.parametrize(
    ("name", "size", "claims"),
    [
        ("twicing", (7_460_000, 1), ["size-twicing"]),
        ("wide", (8_740_000, 1), ["size-wide"]),
        ("boosted", (8_732_000, 26_000_000), ["cost-2"]),
        ("boosted", (8_890_000, 21_000_000), ["size-boosted", "size-more"]),
        ("boosted with three rounds", (1, 24_000_000), ["cost-3"]),
    ],
)
def test_a_digit_off_is_not_reproduced(name, size, claims):
    found = verdicts(EXPERIMENT, made(**{name: size}))
    assert [id for id, verdict in found.items() if verdict == "not reproduced"] == claims
