"""Cached decoding for timing: the tokens that generate gives, and the bytes of a cache."""

import pytest
import torch

from boosted_attention import boost
from boosted_attention.pretrained.decoding import Decoder
from tests.pretrained.families import disturb, tiny, tokens


@pytest.mark.parametrize("kind", [None, {}, {"rank": 2, "kv": "shared"}], ids=["original", "full", "shared"])
def test_a_decoder_goes_on_as_generate_does(kind):
    model = tiny("llama") if kind is None else boost(tiny("llama"), **kind)
    disturb(model)
    model.generation_config.eos_token_id = None
    ids = tokens()[:1]
    whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
    advance, length = Decoder(model, ids), ids.shape[1]
    for last, more in ((0, 0), (3, 3), (5, 2)):
        advance(more)
        assert torch.equal(advance.last, whole[:, length + last : length + last + 1])


def test_bytes_of_a_token():
    """Keys and values of every layer; a correction with its own has as many again, one that shares them none."""
    config = tiny("llama").config
    own = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4  # float32
    for kind, times in ((None, 1), ({}, 2), ({"rank": 2}, 2), ({"rank": 2, "kv": "shared"}, 1)):
        model = tiny("llama") if kind is None else boost(tiny("llama"), **kind)
        decoder = Decoder(model, tokens()[:1])
        decoder(2)
        assert decoder.cache_bytes() == times * own
