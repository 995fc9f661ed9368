"""The switch: what is left out is left out exactly, everywhere it is asked for and nowhere else."""

import pytest
import torch
from torch import nn

from boosted_attention import LanguageModelConfig, capture, disable_rounds, list_attention
from boosted_attention.attention.boosting import boosting
from boosted_attention.attention.trace import traced_layers
from tests.conftest import D_MODEL, build, randn


def corrected() -> list[str]:
    return [name for name in list_attention() if build(name).config.n_rounds > 1]


@pytest.mark.parametrize("name", corrected())
def test_without_corrections_the_first_estimate_is_left(name):
    layer, x = build(name), randn(2, 9, D_MODEL)
    with capture(layer) as traces:
        whole = layer(x, is_causal=True)
        first = traces[""].rounds[0].estimate
    with disable_rounds(layer):
        alone = layer(x, is_causal=True)
    expected = first if layer.out_proj is None else layer.out_proj(first)
    torch.testing.assert_close(alone, expected, rtol=0, atol=1e-12)
    assert not torch.allclose(alone, whole)
    torch.testing.assert_close(layer(x, is_causal=True), whole, rtol=0, atol=1e-12)


def test_one_round_of_several():
    layer, x = build("boosted", n_rounds=3), randn(2, 7, D_MODEL)
    with disable_rounds(layer, rounds=1), capture(layer) as traces:
        y = layer(x, is_causal=True)
    rounds = traces[""].rounds
    assert len(rounds) == 2
    gate = layer.gates[1](rounds[0].estimate, rounds[1].correction)
    torch.testing.assert_close(rounds[1].gate, gate, rtol=0, atol=1e-12)
    by_hand = boosting(
        x, [lambda _: rounds[0].estimate, lambda r: rounds[1].correction], [layer.gates[1]], [lambda x, f: x - f]
    )
    torch.testing.assert_close(y, layer.out_proj(by_hand), rtol=0, atol=1e-12)
    torch.testing.assert_close(rounds[1].residual, x - rounds[0].estimate, rtol=0, atol=1e-12)


def test_layers_by_number_and_name():
    model = LanguageModelConfig(vocab_size=11, d_model=16, n_layers=3, n_heads=2, max_len=8).build()
    names = list(traced_layers(model))
    with disable_rounds(model, layers=[0, "layers.2.attention"]):
        assert [len(layer.disabled) for layer in traced_layers(model).values()] == [1, 0, 1]
        with disable_rounds(model, layers=-2):
            assert all(layer.disabled == {1} for layer in traced_layers(model).values())
        assert not traced_layers(model)[names[1]].disabled
    with pytest.raises(RuntimeError, match="inside"), disable_rounds(model):
        raise RuntimeError("inside")
    assert not any(layer.disabled for layer in traced_layers(model).values())


def test_cached_generation_with_rounds_off():
    model = LanguageModelConfig(vocab_size=11, d_model=16, n_layers=2, n_heads=2, max_len=12).build().eval()
    ids = torch.randint(11, (2, 4))
    with disable_rounds(model, layers=1):
        assert torch.equal(model.generate(ids, 6), model.generate(ids, 6, use_cache=False))


def test_a_cache_is_not_continued_with_other_rounds():
    from boosted_attention import KVCache

    layer, x, cache = build("boosted"), randn(1, 3, D_MODEL), KVCache()
    layer(x, is_causal=True, cache=cache)
    with disable_rounds(layer), pytest.raises(ValueError, match="other rounds disabled"):
        layer(x[:, :1], is_causal=True, cache=cache)
    assert cache.length == 3


def test_refusals():
    layer = build("boosted")
    for call, message in (
        ({"layers": 3}, "no layer 3; the model has 1"),
        ({"layers": "laters"}, "no layer 'laters'"),
        ({"rounds": 0}, "round 0 is the first estimate"),
        ({"rounds": 2}, "numbers from 1 to 1"),
        ({"rounds": True}, "rounds=True must be numbers"),
        ({"layers": 1.5}, "no layer 1.5"),
    ):
        with pytest.raises(ValueError, match=message), disable_rounds(layer, **call):
            pass
    with pytest.raises(ValueError, match="contains no attention layer"), disable_rounds(nn.Linear(2, 2)):
        pass


def test_a_standard_layer_has_nothing_to_switch_off():
    layer, x = build("standard"), randn(1, 5, D_MODEL)
    whole = layer(x)
    with disable_rounds(layer):
        assert torch.equal(layer(x), whole)
