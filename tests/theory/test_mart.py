"""Boosting with shrinkage: what its checks measure, computed in another way, and made wrong."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from boosted_attention.attention.layer import BoostedAttention
from boosted_attention.attention.trace import capture
from boosted_attention.retrieval.training import RetrievalTraining, seeded
from boosted_attention.theory import mart
from boosted_attention.theory.finding import gaussian, generator
from tests.theory.values import only


def test_the_spread_of_the_vector_gate_is_that_of_its_layer():
    found = mart.scalar_gate_is_shrinkage(4)
    x = gaussian(2, 9, 16, draw=generator(4))
    layer = seeded(lambda: BoostedAttention(16, 2, out_proj=False), 4).double()
    with capture(layer) as traces, torch.no_grad():
        layer(x)
    gate = traces[""].rounds[1].gate
    assert gate is not None
    assert only(found.counter, "spread") == pytest.approx(np.std(gate.numpy(), ddof=1))


def test_rounds_that_do_not_see_the_residual_are_found(monkeypatch):
    monkeypatch.setattr(mart, "BoostedAttention", partial(BoostedAttention, residual="input"))
    monkeypatch.setattr(mart, "RetrievalTraining", partial(RetrievalTraining, steps=1, batch=8))
    assert not mart.residual_is_the_gradient(0).holds


def test_a_gate_of_another_size_than_the_shrinkage_is_found(monkeypatch):
    monkeypatch.setattr(mart, "math", SimpleNamespace(log=lambda value: 0.0))
    assert not mart.scalar_gate_is_shrinkage(0).holds
