"""What studies share: the rows they see, histograms, and rounding."""

import numpy as np
import pytest
import torch

from boosted_attention.analysis.dynamics import DynamicsStudy
from boosted_attention.analysis.interval import Interval
from boosted_attention.analysis.predictions import Prediction
from boosted_attention.analysis.survey import Histogram, by_layer, draw_rows, rounded, survey
from tests.analysis.made import model


def test_rows_are_drawn_once_each_and_the_same_every_time():
    tokens = np.arange(1000, dtype=np.uint16)
    rows = draw_rows(tokens, 9, 20)
    assert rows.shape == (20, 10)
    assert torch.equal(rows, draw_rows(tokens, 9, 20))
    assert len(set(rows[:, 0].tolist())) == 20
    assert bool((rows.diff(dim=1) == 1).all())
    assert draw_rows(tokens[:21], 9, 20).shape == (2, 10)
    with pytest.raises(ValueError, match="9 tokens; sequences of 9 need at least 10"):
        draw_rows(tokens[:9], 9, 20)


def test_histograms_clamp_and_rounding_refuses_what_is_not_finite():
    histogram = Histogram(0.0, 1.0, 4)
    histogram.add(torch.tensor([-1.0, 0.1, 0.3, 0.99, 2.0]))
    assert histogram.result().share == pytest.approx([0.4, 0.2, 0, 0.4])
    assert rounded({"a": [1.23456789, None, 3, "x"]}) == {"a": [1.23457, None, 3, "x"]}
    with pytest.raises(ValueError, match="infinite or NaN"):
        rounded([{"a": float("nan")}])


def test_rounding_keeps_types():
    found = rounded(Interval(mean=1.23456789, low=0.0, high=2.0, n=3))
    assert found == Interval(mean=1.23457, low=0.0, high=2.0, n=3)
    assert rounded([Prediction("a", 0.123456789)]) == [Prediction("a", 0.123457)]
    assert isinstance(rounded(Prediction("a", 0.5)), Prediction)
    assert rounded((1.0, 2)) == (1.0, 2)


def test_findings_of_a_round_are_found_by_layer(rows):
    study = DynamicsStudy()
    survey(model(), rows, [study])
    chosen = by_layer(study.result(), 1)
    assert list(chosen) == [0, 1]
    assert all((layer, 1) == (one.layer, one.round) for layer, one in chosen.items())
