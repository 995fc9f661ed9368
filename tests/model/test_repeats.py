"""Repeated blocks: the same weights again, with a cache that has slots for every time."""

import pytest
import torch

from boosted_attention import KVCache, LanguageModelConfig, list_attention
from boosted_attention.attention.checks import CHECK_OPTIONS
from boosted_attention.train.memory import estimate_memory
from tests.model.depth import SMALL, assert_causal_and_cached, assert_like_oracle, counted_flops, small, tokens


def test_equal_to_applying_the_blocks_so_often_bit_for_bit():
    model, ids = small("boosted", n_repeats=3), tokens()
    h = model.embed(ids) + model.positions(torch.arange(12))
    for _ in range(3):
        for block in model.layers:
            h = block(h)
    assert torch.equal(model.hidden(ids), model.norm(h))


def test_equal_to_a_deep_model_with_the_same_weights_in_every_layer():
    repeated, ids = small(n_repeats=2), tokens()
    deep = small(n_layers=4)
    state = repeated.state_dict()
    deep.load_state_dict(
        {n: state[n.replace("layers.2.", "layers.0.").replace("layers.3.", "layers.1.")] for n in deep.state_dict()}
    )
    assert torch.equal(repeated(ids), deep(ids))


def test_equal_to_plain_loops_in_outputs_and_gradients():
    def oracle(w, ids):
        h = w.embedded(ids)
        for i in (0, 1, 0, 1):
            h = w.block(i, h)
        return w.logits(h)

    assert_like_oracle(small(n_repeats=2), oracle, tokens())


@pytest.mark.parametrize("attention", ["standard", "boosted", "twicing"])
def test_causal_and_exact_with_a_cache(attention):
    assert_causal_and_cached(small(attention, n_repeats=2, positions="rotary"))


def test_the_cache_has_slots_for_every_time():
    model, cache = small("boosted", n_repeats=3), KVCache()
    model(tokens(), cache=cache)
    keys = [cache.layer(i).slots["k", 1] for i in range(6)]
    assert len({t.data_ptr() for t in keys}) == 6
    assert not torch.equal(keys[0], keys[2])


@pytest.mark.parametrize("name", list_attention())
def test_flops_and_memory_follow(name):
    options = {**SMALL, "max_len": 64, "attention": name, "attention_options": CHECK_OPTIONS.get(name, {})}
    config = LanguageModelConfig(**options, n_repeats=3, tie_weights=False)
    once = LanguageModelConfig(**options, tie_weights=False)
    assert config.flops() == pytest.approx(counted_flops(config), rel=0.01)
    assert config.flops() == sum(config.flops_by_part().values())
    assert config.flops() - once.flops() == 2 * (once.flops() - 2 * 31 * 16)
    assert config.num_params() == once.num_params()


def test_memory_follows():
    of = {n: estimate_memory(LanguageModelConfig(**SMALL, n_repeats=n), batch_size=2) for n in (1, 3)}
    assert of[3].cache == 3 * of[1].cache
    assert of[3].weights == of[1].weights
    assert of[3].largest_block == of[1].largest_block
    one_stream = 2 * 12 * 16 * 4
    assert of[3].between_blocks == of[1].between_blocks + 4 * one_stream
    inside = of[1].activations - (of[1].between_blocks - 2 * one_stream)
    assert of[3].activations == of[1].activations + 2 * inside


@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_a_number_of_repeats_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=f"n_repeats={value} must be an integer of at least 1"):
        LanguageModelConfig(**SMALL, n_repeats=value)
