"""Table 6 from accuracies made by hand."""

from boosted_attention.lab.experiments.retrieval.gates import (
    ACCURACY,
    BASELINE,
    EXPERIMENT,
    GAIN,
    NONE_OVER_VECTOR,
    SCALAR_OVER_VECTOR,
)
from tests.lab.experiments.made import RETRIEVAL, check, compared, minus, papers, retrieval, row, verdicts

RIGHT = {
    BASELINE: (48.1, 48.4, 48.0, 48.3),
    "none": (55.2, 55.7, 55.3, 55.4),
    "scalar": (56.4, 56.8, 56.3, 56.5),
    "vector": (55.6, 55.8, 55.4, 55.5),
    "mlp": (50.0, 51.0, 52.0, 53.0),
}


def made(right=RIGHT):
    def of(config):
        model = config["model"]
        return right[BASELINE if model["n_rounds"] == 1 else model["gate"]]

    return EXPERIMENT.table(RETRIEVAL, retrieval(of))


def test_every_gate_is_compared_with_one_round():
    table = made()
    check(table, {ACCURACY[arm]: values for arm, values in RIGHT.items()})
    check(table, {GAIN[arm]: minus(RIGHT[arm], RIGHT[BASELINE]) for arm in RIGHT if arm != BASELINE})
    check(
        table,
        {
            SCALAR_OVER_VECTOR: minus(RIGHT["scalar"], RIGHT["vector"]),
            NONE_OVER_VECTOR: minus(RIGHT["none"], RIGHT["vector"]),
        },
    )
    assert list(compared(table)) == [*GAIN.values(), SCALAR_OVER_VECTOR, NONE_OVER_VECTOR]


def test_columns_are_the_arms():
    table = made()
    means = [sum(values) / 4 for values in RIGHT.values()]
    assert table.columns == list(RIGHT)
    assert row(table, "accuracy") == means
    assert row(table, "squared error") == [v / 100 for v in means]
    assert papers(table, "accuracy") == [48.2, 55.4, 56.5, 55.6, None]


def test_numbers_like_the_papers_reproduce_it():
    assert set(verdicts(EXPERIMENT, made()).values()) == {"reproduced"}


def test_sentences_say_which_gate_the_papers_mlp_is():
    said = {c.id: c.sentence for c in EXPERIMENT.claims}
    for id, sentence in said.items():
        assert ("the per-dimension gate (the paper's 'MLP')" in sentence) == ("vector" in id), id
    assert said["gates-none"] == "Two rounds with no gate retrieve 55.4 %."
    assert said["gates-scalar-gain-size"] == "Two rounds with a scalar gate gain 8.3 points on one round."


def test_gates_that_lose_or_differ_contradict_it():
    swapped = {**RIGHT, BASELINE: [v + 20 for v in RIGHT[BASELINE]], "none": [v - 9 for v in RIGHT["none"]]}
    found = verdicts(EXPERIMENT, made(swapped))
    assert {found[f"gates-{gate}-gain"] for gate in ("none", "scalar", "vector")} == {"contradicted"}
    assert found["gates-none-vector"] == "contradicted"
    assert found["gates-scalar-vector"] == "reproduced"
    assert (found["gates-none"], found["gates-baseline"]) == ("not reproduced", "not reproduced")
    assert (found["gates-scalar"], found["gates-scalar-gain-size"]) == ("reproduced", "not reproduced")
