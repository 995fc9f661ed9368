"""What heads attend to, from attention made by hand."""

import numpy as np
import pytest
import torch

from boosted_attention import LayerTrace, RoundTrace
from boosted_attention.analysis.specialisation import KEY_KINDS, SpecialisationStudy, is_punctuation
from tests.analysis.made import VOCABULARY


def made_trace(weights):
    trace = LayerTrace([RoundTrace()])
    trace.rounds[0].weights = weights
    return [trace]


def test_what_heads_attend_to():
    """Attention made by hand: to oneself, the token before, the first one, and a comma."""
    ids = torch.tensor([[1, 41, 1, 2, 1, 41]])  # the comma is token 41
    punctuation = torch.tensor([is_punctuation(text) for text in VOCABULARY])
    eye = torch.eye(6)
    before = torch.cat([eye[:1], eye[:-1]])
    first = torch.zeros(6, 6)
    first[:, 0] = 1
    study = SpecialisationStudy(punctuation)
    study.add(ids, made_trace(torch.stack([eye, before, first])[None]))
    heads = study.result().rows[0].heads
    assert heads["itself"] == pytest.approx([1, 1 / 6, 1 / 6])
    assert heads["previous token"] == pytest.approx([0, 5 / 6, 1 / 6])
    assert heads["first position"] == pytest.approx([1 / 6, 2 / 6, 1])
    assert heads["punctuation"] == pytest.approx([2 / 6, 1 / 6, 0])
    assert heads["same token earlier"] == pytest.approx([0, 0, 2 / 6])  # positions 2 and 4 look at token 1, at 0
    uniform = study.result().uniform
    assert uniform["itself"] == pytest.approx(np.mean([1 / t for t in range(1, 7)]))
    assert uniform["punctuation"] == pytest.approx(np.mean([0, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 2 / 6]))
    assert set(uniform) == set(KEY_KINDS)


def test_punctuation_is_signs_only():
    assert [text for text in VOCABULARY if is_punctuation(text)] == [".", ",", "(", "_"]
    assert is_punctuation(' "')
    assert not is_punctuation("")
