"""Entropy of attention against the plain computation on the whole, and correlations."""

import numpy as np
import pytest

from boosted_attention.analysis.entropy import EntropyFinding, EntropyStudy, correlation, rank_correlation, ratios
from boosted_attention.analysis.survey import Distribution, survey
from tests.analysis.made import T, model, whole_trace


@pytest.mark.parametrize("batch_size", [1, 4])
def test_entropy_is_that_of_the_whole_trace(rows, batch_size):
    m, study = model(attention_options={"n_rounds": 3}), EntropyStudy(T)
    survey(m, rows, [study], batch_size=batch_size)
    found = {(row.layer, row.round): row for row in study.result()}
    assert set(found) == {(layer, r) for layer in range(2) for r in range(3)}
    for layer, trace in enumerate(whole_trace(m, rows)):
        for r, one in enumerate(trace.rounds):
            w = one.weights.double()
            h = -(w * w.clamp_min(1e-300).log()).sum(-1)  # (B, H, T)
            assert found[layer, r].mean == pytest.approx(float(h.mean()), abs=1e-5)
            assert found[layer, r].heads == pytest.approx(h.mean(dim=(0, 2)).tolist(), abs=1e-5)
            assert sum(found[layer, r].histogram.share) == pytest.approx(1.0)
            if r:
                sharp, gate = -h.mean(dim=1).flatten().numpy(), one.gate.double().mean(dim=-1).flatten().numpy()
                expected = np.corrcoef(sharp, gate)[0, 1]
                assert found[layer, r].correlation_with_gate == pytest.approx(expected, abs=1e-3)


def test_ratios_and_correlations():
    def finding(m, mean):
        return EntropyFinding(
            layer=0, round=m, mean=mean, heads=[mean], histogram=Distribution(low=0.0, high=1.0, share=[1.0])
        )

    assert [one.percent for one in ratios([finding(0, 3.0), finding(1, 1.0)], [finding(0, 2.0)])] == [50.0, -50.0]
    assert ratios([finding(0, 3.0)], [finding(0, 0.0)]) == []
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 30], [3, 2, 1]) == pytest.approx(-1.0)
    assert correlation([1, 1], [1, 2]) is None
    assert correlation([1], [1]) is None


def test_a_gate_that_does_not_vary_has_no_correlation(rows):
    study = EntropyStudy(T)
    survey(model(attention_options={"gate": "scalar"}), rows, [study])
    assert [one.correlation_with_gate for one in study.result()] == [None] * 4
