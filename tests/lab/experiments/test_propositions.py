"""The propositions' table, from findings made by hand."""

import pytest

from boosted_attention.lab.experiments.propositions import EXPERIMENT, HOLD, LIMIT, STATEMENTS
from boosted_attention.theory.finding import Finding
from tests.lab.experiments.made import RETRIEVAL, check, of_config, verdicts


def finding(name, holds=True, counter_holds=True):
    measured, counter = {f"error of {name}": 0.25}, {f"limit of {name}": 0.75}
    return Finding(
        name=name,
        paper="said.",
        measured=measured,
        holds=holds,
        condition="unless.",
        counter=counter,
        counter_holds=counter_holds,
    )


def made(*failing, limits=()):
    findings = [finding(name, name not in failing, name not in limits) for name in STATEMENTS]
    return EXPERIMENT.table(RETRIEVAL, of_config(lambda work, config: findings))


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_check_that_fails_contradicts_its_own_claim_alone(name):
    table = made(name)
    check(table, {HOLD[name]: 0.0, LIMIT[name]: 1.0})
    found = verdicts(EXPERIMENT, table)
    assert [id for id, verdict in found.items() if verdict == "contradicted"] == [f"theory-{name}"]
    assert set(found.values()) == {"contradicted", "reproduced"}
    assert f"**{name}** DOES NOT HOLD. said. Measured: error of {name}: 0.25. *Limit:* unless." in "\n".join(
        table.notes
    )


def test_a_limit_that_does_not_show_is_said_and_judges_nothing():
    table = made(limits=["3a"])
    check(table, {HOLD["3a"]: 1.0, LIMIT["3a"]: 0.0, LIMIT["3b"]: 1.0})
    assert set(verdicts(EXPERIMENT, table).values()) == {"reproduced"}
    assert "*Limit (NOT SEEN):* unless. Measured: limit of 3a: 0.75." in "\n".join(table.notes)
