"""Gates: means, spreads and tokens against the plain computation on the whole."""

import numpy as np
import pytest

from boosted_attention.analysis.gates import GateStudy
from boosted_attention.analysis.survey import survey
from tests.analysis.made import VOCABULARY, T, model, whole_trace


@pytest.mark.parametrize("batch_size", [1, 4])
def test_gates_are_described_as_the_whole_trace_has_them(rows, batch_size):
    m, study = model(), GateStudy(VOCABULARY)
    survey(m, rows, [study], batch_size=batch_size)
    found = study.result()
    assert [(row.layer, row.round) for row in found] == [(0, 1), (1, 1)]
    for row, trace in zip(found, whole_trace(m, rows), strict=True):
        g = trace.rounds[1].gate.double()
        assert row.mean == pytest.approx(float(g.mean()), abs=1e-6)
        assert row.std == pytest.approx(float(g.std(correction=0)), abs=1e-6)
        assert row.spread == pytest.approx(float(g.mean(dim=(0, 1)).std(correction=0)), abs=1e-6)
        assert row.open == pytest.approx(float((g > 0.5).double().mean()))
        assert row.dimensions == pytest.approx(g.mean(dim=(0, 1)).tolist(), abs=1e-6)
        assert row.positions == pytest.approx(g.mean(dim=(0, 2)).tolist(), abs=1e-6)
        expected, _ = np.histogram(g.numpy(), bins=20, range=(0, 1))
        assert row.histogram.share == pytest.approx((expected / expected.sum()).tolist(), abs=2e-3)
        assert row.widest_tokens[0].mean >= row.narrowest_tokens[0].mean
        text, mean, occurrences = row.widest_tokens[0]
        token = VOCABULARY.index(text)
        assert occurrences == int((rows[:, :-1] == token).sum())
        assert mean == pytest.approx(float(g.mean(dim=-1)[rows[:, :-1] == token].mean()), abs=1e-6)


def test_scalar_gates_have_one_dimension(rows):
    m, study = model(attention_options={"gate": "scalar"}), GateStudy(VOCABULARY)
    survey(m, rows, [study])
    assert [len(row.dimensions) for row in study.result()] == [1, 1]
    assert study.result()[0].mean == pytest.approx(float(m.layers[0].attention.gates[0].logit.detach().sigmoid()))


def test_gates_have_three_dimensions(rows):
    """One number for all positions and dimensions is seen as (B, T, 1)."""
    for gate, width in (("vector", 16), ("mlp", 16), ("scalar", 1), ("none", 1)):
        for trace in whole_trace(model(attention_options={"gate": gate}), rows):
            assert trace.rounds[0].gate is None
            assert trace.rounds[1].gate.shape == (len(rows), T, width)
