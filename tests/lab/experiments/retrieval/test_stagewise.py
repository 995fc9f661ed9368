"""Rounds trained together and one after the other, from accuracies made by hand."""

import pytest

from boosted_attention.lab.experiments.retrieval.stagewise import (
    ACCURACY,
    EXPERIMENT,
    GAIN,
    JOINT,
    LONGER,
    PAPERS,
    STAGEWISE,
)
from boosted_attention.retrieval.scoring import RetrievalResult
from tests.lab.experiments.made import RETRIEVAL, check, compared, minus, of_config, row, verdicts

RIGHT = {  # steps, way, rounds
    (150, "retrieval.train", 2): (55.0, 55.5, 54.5, 56.0),
    (150, "retrieval.train", 3): (56.0, 56.2, 55.8, 56.1),
    (150, "retrieval.train-stagewise", 2): (51.0, 50.5, 50.0, 52.0),
    (150, "retrieval.train-stagewise", 3): (51.2, 51.5, 52.0, 52.4),
    (600, "retrieval.train", 2): (57.0, 57.1, 57.2),
    (600, "retrieval.train", 3): (57.3, 57.4, 57.2),
    (600, "retrieval.train-stagewise", 2): (56.7, 56.8, 57.0),
    (600, "retrieval.train-stagewise", 3): (56.8, 56.6, 56.7),
}
STEPS = {PAPERS: 150, LONGER: 600}
WORK = {JOINT: "retrieval.train", STAGEWISE: "retrieval.train-stagewise"}


def made(right=RIGHT):
    def answer(work, config):
        assert config["task"]["d"] == 64
        values = right[config["training"]["steps"], work, config["model"]["n_rounds"]]
        return {
            seed: RetrievalResult(accuracy=value, mse=value / 100, rounds=[])
            for seed, value in zip(config["seeds"], values, strict=True)
        }

    return EXPERIMENT.table(RETRIEVAL, of_config(answer))


def test_every_quantity_is_read_from_its_own_models():
    table = made()
    for budget, steps in STEPS.items():
        for how, work in WORK.items():
            check(table, {ACCURACY[budget, how, m]: RIGHT[steps, work, m] for m in (2, 3)})
            means = [sum(RIGHT[steps, work, m]) / len(RIGHT[steps, work, m]) for m in (2, 3)]
            assert row(table, f"{how}, {budget}") == [*means, *(mean / 100 for mean in means)]
        for m in (2, 3):
            check(table, {GAIN[budget, m]: minus(RIGHT[steps, WORK[JOINT], m], RIGHT[steps, WORK[STAGEWISE], m])})
    assert list(compared(table)) == list(GAIN.values())


@pytest.mark.parametrize(("by", "verdict"), [(0.0, "reproduced"), (9.0, "contradicted")])
def test_the_papers_steps_decide(by, verdict):
    moved = {key: [v + by * (key[1] == WORK[STAGEWISE] and key[0] == 150) for v in row] for key, row in RIGHT.items()}
    assert verdicts(EXPERIMENT, made(moved)) == {"stagewise-2": verdict, "stagewise-3": verdict}


def test_the_figure_shows_both_ways_at_both_lengths():
    figure = EXPERIMENT.figure(RETRIEVAL, made(), lambda trial: None)
    assert [panel.title for panel in figure.panels] == [PAPERS, LONGER]
    assert [series.name for series in figure.panels[0].series] == [JOINT, STAGEWISE]
    assert list(figure.panels[1].series[1].y) == pytest.approx([56.8333333, 56.7])
