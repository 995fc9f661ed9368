"""Importance: the loss with a layer's corrections switched off."""

import pytest
import torch

from boosted_attention import LanguageModelConfig, disable_rounds
from boosted_attention.analysis.importance import importance, most_important
from boosted_attention.analysis.survey import token_losses_of
from tests.analysis.made import model


def test_importance_is_the_loss_that_switching_off_costs(rows):
    m = model()
    found = importance(m, rows)
    with torch.no_grad():
        base = token_losses_of(m, rows)
        assert found.loss == pytest.approx(float(base.double().mean()), abs=1e-6)
        for layer, change in [*((one.layer, one) for one in found.layers), (None, found.all)]:
            with disable_rounds(m, layers=layer):
                off = token_losses_of(m, rows)
            assert change.mean == pytest.approx(float((off - base).double().mean()), abs=1e-6)
            assert change.low <= change.mean <= change.high
    assert found.worth_boosting == [one.layer for one in found.layers if one.low > 0]
    assert len(most_important(found, 1)) == 1
    best = max(found.layers, key=lambda one: one.mean).layer
    assert most_important(found, 1) == [best]
    chosen = most_important(found, 2)
    assert LanguageModelConfig(n_layers=2, boosted_layers=chosen).attention_layers() == {0, 1}


def test_a_correction_that_does_nothing_is_worth_nothing(rows):
    m = model()
    qkv = m.layers[1].attention.rounds[1].qkv
    with torch.no_grad():
        qkv.weight[-16:] = 0  # its values
        qkv.bias[-16:] = 0
    found = importance(m, rows)
    assert found.layers[1].mean == 0.0
    assert 1 not in found.worth_boosting
    plain = importance(model("standard"), rows)
    assert plain.layers == []
    assert plain.all is None
