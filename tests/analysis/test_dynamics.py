"""Dynamics of the rounds against the plain computation on the whole, and the probe."""

import pytest
import torch

from boosted_attention.analysis.dynamics import DynamicsStudy, dynamics_probe
from boosted_attention.analysis.survey import survey
from tests.analysis.made import model, whole_trace


def test_dynamics_are_those_of_the_whole_trace(rows):
    m, study = model(), DynamicsStudy()
    survey(m, rows, [study])
    for row in study.result():
        trace = whole_trace(m, rows)[row.layer]
        x, r = trace.rounds[0].residual, trace.rounds[row.round]
        left = ((x - r.estimate).norm(dim=-1) / x.norm(dim=-1)).mean()
        assert row.left == pytest.approx(float(left), abs=1e-5)
        cosine = (r.correction * r.residual).sum(-1) / r.correction.norm(dim=-1) / r.residual.norm(dim=-1)
        assert row.cosine == pytest.approx(float(cosine.mean()), abs=1e-5)
        assert row.gate == pytest.approx(1.0 if r.gate is None else float(r.gate.mean()), abs=1e-6)


def test_the_probe_disturbs_nothing(rows):
    m = model(dropout=0.5).train()
    state = torch.get_rng_state()
    probe = dynamics_probe(m, rows[:2, :-1])
    assert m.training
    assert torch.equal(torch.get_rng_state(), state)
    assert [layer.trace for layer in (m.layers[0].attention, m.layers[1].attention)] == [None, None]
    assert [(row.layer, row.round) for row in probe] == [(0, 0), (0, 1), (1, 0), (1, 1)]
