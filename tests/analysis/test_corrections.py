"""Corrections: where one model predicts better than another, token by token."""

import pytest
import torch

from boosted_attention.analysis.corrections import corrections
from boosted_attention.analysis.survey import token_losses_of
from tests.analysis.made import VOCABULARY, T, model


def test_corrections_show_gains_and_losses(rows):
    mine, theirs = model(), model("standard")
    found = corrections(mine, theirs, rows, VOCABULARY)
    with torch.no_grad():
        gain = token_losses_of(theirs, rows) - token_losses_of(mine, rows)  # (n, T)
    assert found.tokens == gain.numel()
    assert found.gain.mean == pytest.approx(float(gain.mean()), abs=1e-5)
    assert found.share_better == pytest.approx(float((gain > 0).double().mean()))
    assert found.quantiles["0.5"] == pytest.approx(float(gain.median()), abs=0.5)
    top, bottom = found.gains[0], found.losses[0]
    assert top.against.loss - top.model.loss == pytest.approx(float(gain[:, 4:].max()), abs=1e-5)
    assert bottom.against.loss - bottom.model.loss == pytest.approx(float(gain[:, 4:].min()), abs=1e-5)
    differences = [e.against.loss - e.model.loss for e in found.gains]
    assert differences == sorted(differences, reverse=True)
    n, t = divmod(int(gain[:, 4:].argmax()), T - 4)
    t += 4
    assert top.context == [VOCABULARY[i] for i in rows[n, : t + 1].tolist()]
    assert top.target == VOCABULARY[int(rows[n, t + 1])]
    assert [len(layer) for layer in top.model.attention] == [2, 2]
    assert [len(layer) for layer in top.against.attention] == [1, 1]
    assert sum(top.model.attention[0][1]) == pytest.approx(1.0, abs=1e-5)
    assert len(top.model.top) == 5
    same = corrections(mine, mine, rows, VOCABULARY)
    assert same.gain.mean == 0.0
