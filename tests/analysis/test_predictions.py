"""The likeliest next tokens."""

import pytest
import torch

from boosted_attention.analysis.predictions import texts_of, top_predictions


def test_the_likeliest_come_first_with_their_texts():
    p = torch.tensor([0.1, 0.4, 0.05, 0.2, 0.02, 0.15, 0.08])
    found = top_predictions(p.log() + 3.0, list("abcdefg"))
    assert [token for token, _ in found] == list("bdfag")
    assert [value for _, value in found] == pytest.approx([0.4, 0.2, 0.15, 0.1, 0.08])


def test_ids_beyond_the_vocabulary_are_shown_as_numbers():
    assert [token for token, _ in top_predictions(torch.tensor([1.0, 2.0, 3.0]), ["a", "b"])] == ["<2>", "b", "a"]


def test_texts_of_ids():
    assert texts_of(torch.tensor([2, 0]), list("abc")) == ["c", "a"]
