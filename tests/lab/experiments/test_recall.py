"""Recall and composition from accuracies made by hand."""

from dataclasses import replace

import pytest

from boosted_attention import list_attention
from boosted_attention.lab.experiments.recall import (
    COMPOSED,
    EXPERIMENT,
    INPUT,
    OVER,
    PARALLEL,
    RECALLED,
    STANDARD,
    accuracy_of,
    layers,
    model_for,
)
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.work.language import Diverged
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.recall.scoring import RecallResult
from tests.lab.experiments.made import check, ledger, minus, of_config, row, verdicts

SEEDS = (0, 1, 2)
PRESET = replace(PRESETS["smoke"], recall=replace(PRESETS["quick"].recall, seeds=SEEDS, d_model=16))
RIGHT = {  # layer: recall, composition
    "standard": ((25.0, 26.0, 24.5), (43.0, 44.0, 43.5)),
    "twicing": ((15.0, 15.5, 16.0), (42.0, 43.0, 42.2)),
    "boosted": ((99.0, 99.5, 98.0), (50.0, 51.5, 50.5)),
    "boosted-input": ((22.0, 23.0, 22.5), (55.0, 56.0, 55.2)),
    "parallel": ((16.0, 17.0, 16.2), (54.0, 54.4, 55.0)),
    "sequential": ((17.0, 18.0, 17.7), (56.0, 55.5, 57.0)),
}
LENGTHS = {"associative": 32, "permutations": 8}


def results(right, without=(), wild=()):
    """Accuracies by layer, task and seed, at twice the length halved; ``wild`` names (layer, task) that diverged."""

    def answer(work, config):
        assert work == "recall.train"
        layer, task = config["model"]["attention"], config["task"]
        assert task["length"] == LENGTHS[task["name"]]
        if layer in without:
            raise KeyError(layer)
        if (layer, task["name"]) in wild and config["training"]["seed"] == 1:
            return Diverged(diverged="step 3: loss nan")
        value = right[layer][task["name"] == "permutations"][SEEDS.index(config["training"]["seed"])]
        parameters = LanguageModelConfig.from_dict(config["model"]).num_params()
        return RecallResult(trained=value, doubled=value / 2, parameters=parameters)

    return of_config(answer)


def made(right=RIGHT, without=(), wild=()):
    return EXPERIMENT.table(PRESET, results(right, without, wild))


def test_every_layer_is_read_from_its_own_models():
    table = made()
    assert list(table.rows) == list(RIGHT)
    for layer, (recalled, composed) in RIGHT.items():
        check(table, {accuracy_of(RECALLED, layer): recalled, accuracy_of(COMPOSED, layer): composed})
        a, b = sum(recalled) / 3, sum(composed) / 3
        assert row(table, layer)[:4] == [a, a / 2, b, b / 2]
    for rival in (STANDARD, PARALLEL, INPUT):
        for i, name in enumerate((RECALLED, COMPOSED)):
            check(table, {OVER[name, rival]: minus(RIGHT["boosted"][i], RIGHT[rival][i])})


def test_layers_have_as_many_parameters_within_a_percent():
    sizes = [cells[-1].ours.mean for cells in made().rows.values()]
    assert max(sizes) / min(sizes) < 1.02
    for layer in list_attention():
        model, boosted = (model_for(RECALLED, one, 64, 1) for one in (layer, "boosted"))
        assert model.attention == layer
        assert model.num_params() == pytest.approx(boosted.num_params(), rel=0.01), layer


def test_claims_are_judged_by_sign_at_a_place_of_their_own():
    found = verdicts(EXPERIMENT, made(), "sequence tasks")
    assert set(found.values()) == {"reproduced"}
    assert len(found) == len(EXPERIMENT.claims)
    worse = {**RIGHT, "boosted": ((10.0, 10.5, 10.2), (41.0, 41.9, 41.6))}
    assert set(verdicts(EXPERIMENT, made(worse), "sequence tasks").values()) == {"contradicted"}


def test_a_layer_that_is_not_there_is_named():
    table = made(without=("parallel", "twicing"))
    assert "Not run: twicing, parallel." in table.notes
    assert table.missing[OVER[RECALLED, PARALLEL]] == "parallel was not run"
    judged = {j.claim.id: j.verdict for j in ledger(EXPERIMENT, table).rows}
    assert judged["recall-residual"] == "not run"
    assert judged["recall-associations"] == "reproduced"


def test_a_layer_that_diverged_on_a_task_fails_there_and_keeps_the_other():
    table = made(wild=[("parallel", "associative")])
    assert table.failed == {OVER[RECALLED, PARALLEL]: "parallel diverged"}
    assert not table.missing
    assert f"parallel diverged on {RECALLED} and has no numbers there: seed 1: step 3: loss nan." in table.notes
    check(table, {OVER[COMPOSED, PARALLEL]: minus(RIGHT["boosted"][1], RIGHT["parallel"][1])})
    composed = sum(RIGHT["parallel"][1]) / 3
    assert row(table, "parallel")[:4] == [None, None, composed, composed / 2]
    judged = {j.claim.id: j.verdict for j in ledger(EXPERIMENT, table).rows}
    assert judged["recall-residual"] == "failed"
    assert judged["recall-kv"] == judged["recall-associations"] == "reproduced"


def test_a_boosted_model_that_diverged_fails_every_comparison_of_its_task():
    both = [("boosted", "associative"), ("boosted", "permutations")]
    table = made(wild=both[:1])
    assert set(table.failed) == {quantity for (name, _), quantity in OVER.items() if name == RECALLED}
    table = made(wild=both)
    assert set(table.failed) == set(OVER.values())
    assert row(table, "boosted") == [None] * 5
    assert set(verdicts(EXPERIMENT, table, "sequence tasks").values()) == {"failed"}


def test_the_figure_leaves_out_what_diverged():
    wild = [("parallel", "associative"), *((layer, "permutations") for layer in RIGHT)]
    figure = EXPERIMENT.figure(PRESET, made(wild=wild), results(RIGHT, wild=wild))
    (panel,) = figure.panels
    assert panel.title == RECALLED
    assert list(panel.ticks.values()) == [layer for layer in RIGHT if layer != "parallel"]
    assert list(panel.series[0].y) == pytest.approx([sum(v[0]) / 3 for k, v in RIGHT.items() if k != "parallel"])


def test_the_figure_has_bars_for_both_lengths():
    figure = EXPERIMENT.figure(PRESET, made(), results(RIGHT))
    assert [panel.title for panel in figure.panels] == [RECALLED, COMPOSED]
    trained, doubled = figure.panels[1].series
    assert list(trained.y) == pytest.approx([sum(v[1]) / 3 for v in RIGHT.values()])
    assert list(doubled.y) == pytest.approx([sum(v[1]) / 6 for v in RIGHT.values()])


def test_quick_compares_six_layers_and_cpu_the_catalog():
    assert len(layers(PRESETS["quick"])) == 6
    assert len(EXPERIMENT.trials(PRESETS["quick"])) == 24
    assert layers(PRESETS["cpu"]) == list_attention()
