"""Predictors without training against the paper's figures."""

import pytest

from boosted_attention.lab.experiments.retrieval._shared import BAYES
from boosted_attention.retrieval.predictors import PREDICTORS
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import evaluate


@pytest.mark.parametrize(("configuration", "bayes"), BAYES.items())
def test_bayes_is_the_papers_and_the_best_of_all(configuration, bayes):
    """Bayes is the paper's figure and has the least squared error; the raw query decodes to MAP."""
    d, k, sigma = configuration
    task = RetrievalTask(d=d, n_patterns=k, sigma=sigma)
    found = {name: evaluate(make(task), task, 60_000) for name, make in PREDICTORS.items()}
    assert found["bayes"].accuracy == pytest.approx(bayes, abs=0.6)
    assert found["bayes"].mse < min(found[name].mse for name in ("chance", "raw", "map"))
    assert found["raw"].accuracy == found["map"].accuracy
    assert found["map"].accuracy > found["bayes"].accuracy - 0.2
    assert found["chance"].accuracy == pytest.approx(100 / k, abs=1)
    assert found["raw"].mse == pytest.approx(d * sigma**2, rel=0.02)
