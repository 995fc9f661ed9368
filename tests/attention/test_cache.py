"""Cached decoding equals the full forward, however the sequence is cut."""

import pytest
import torch

from boosted_attention import KVCache, padding_mask
from boosted_attention.attention.checks import cached_error
from tests.conftest import D_MODEL, build, every_layer, randn

LENGTH = 13
CUTS = {"tokens": [1] * 13, "prefill then tokens": [9, 1, 1, 1, 1], "chunks": [2, 5, 1, 4, 1]}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("rope_theta", [None, 1e4])
@pytest.mark.parametrize("max_len", [None, 20])
@pytest.mark.parametrize("name", every_layer())
def test_cached_equals_full(name, cut, rope_theta, max_len):
    layer = build(name, rope_theta=rope_theta, n_kv_heads=2)
    assert cached_error(layer, randn(3, LENGTH, D_MODEL), CUTS[cut], max_len) < 1e-10


@pytest.mark.parametrize("name", every_layer())
@torch.no_grad()
def test_left_padded_batch(name):
    """Each row decodes as it would alone, without its padding."""
    layer, x = build(name, rope_theta=1e4), randn(3, LENGTH, D_MODEL)
    padding = torch.tensor([0, 4, 7])
    real = torch.arange(LENGTH) >= padding[:, None]  # (B, S)
    positions = (torch.arange(LENGTH) - padding[:, None]).clamp_min(0)
    cache, done, pieces = KVCache(), 0, []
    for piece in x.split([8, 1, 3, 1], dim=1):
        seen = slice(done, done + piece.shape[1])
        done = seen.stop
        mask = padding_mask(real[:, :done])
        pieces.append(layer(piece, is_causal=True, mask=mask, positions=positions[:, seen], cache=cache))
    y = torch.cat(pieces, dim=1)
    for row, start in enumerate(padding.tolist()):
        alone = layer(x[row : row + 1, start:], is_causal=True)
        torch.testing.assert_close(y[row : row + 1, start:], alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("max_len", [None, LENGTH])
@pytest.mark.parametrize("name", every_layer())
@torch.no_grad()
def test_reorder(name, max_len):
    layer, x, index = build(name), randn(3, LENGTH, D_MODEL), torch.tensor([2, 0, 0])
    cache = KVCache(max_len=max_len)
    layer(x[:, :8], is_causal=True, cache=cache)
    cache.reorder(index)
    y = layer(x[index, 8:], is_causal=True, cache=cache)
    torch.testing.assert_close(y, layer(x[index], is_causal=True)[:, 8:], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "slots"),
    [
        ("standard", [("k", 0), ("v", 0)]),
        ("boosted", [("k", 0), ("k", 1), ("v", 0), ("v", 1)]),
        ("boosted-shared", [("k", 0), ("v", 0)]),
        ("twicing", [("k", 0), ("u", 0), ("v", 0)]),
        ("strict-twicing", [("k", 0), ("u", 0), ("v", 0)]),
        ("delta", [("k", 0), ("u", 0), ("v", 0)]),
        ("local", [("k", 0), ("own k", 0), ("r", 1), ("v", 0)]),
        ("exclusive", [("k", 0), ("v", 0)]),
        ("value-basis", [("k", 0), ("u", 1), ("v", 0)]),
        ("softmax+twicing", [("k", 0), ("k", 1), ("u", 1), ("v", 0), ("v", 1)]),
    ],
)
def test_what_a_layer_keeps(name, slots):
    cache = KVCache()
    build(name, layer_index=3)(randn(2, 5, D_MODEL), is_causal=True, cache=cache)
    assert sorted(cache.layer(3).slots) == slots
    assert cache.length == 5


def test_shared_twicing_keeps_one_kv_and_one_tensor_per_round():
    layer = build("boosted-shared", learner="twicing")
    assert cached_error(layer, randn(2, LENGTH, D_MODEL), [5, 1, 7]) < 1e-10
    cache = KVCache()
    layer(randn(2, 5, D_MODEL), is_causal=True, cache=cache)
    assert sorted(cache.layer(0).slots) == [("k", 0), ("u", 0), ("u", 1), ("v", 0)]


def test_growing_cache_carries_gradients():
    layer, x = build("boosted"), randn(2, 6, D_MODEL)
    cache = KVCache()
    pieces = [layer(piece, is_causal=True, cache=cache) for piece in x.split(2, dim=1)]
    cached = torch.autograd.grad(torch.cat(pieces, dim=1).square().sum(), layer.out_proj.weight)[0]
    full = torch.autograd.grad(layer(x, is_causal=True).square().sum(), layer.out_proj.weight)[0]
    torch.testing.assert_close(cached, full, rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_refused_call_leaves_the_cache_as_it_was():
    layer, x, cache = build("boosted"), randn(2, 6, D_MODEL), KVCache()
    layer(x[:, :4], is_causal=True, cache=cache)
    with pytest.raises(ValueError, match="mask has shape"):
        layer(x[:, 4:], is_causal=True, cache=cache, mask=torch.ones(3, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="batch of 2"):
        layer(x[:1, 4:], is_causal=True, cache=cache)
    y = layer(x[:, 4:], is_causal=True, cache=cache)
    torch.testing.assert_close(y, layer(x, is_causal=True)[:, 4:], rtol=0, atol=1e-10)


@torch.no_grad()
def test_failure_inside_a_round_leaves_the_cache_as_it_was(monkeypatch):
    layer, x, cache = build("boosted"), randn(2, 6, D_MODEL), KVCache()
    layer(x[:, :4], is_causal=True, cache=cache)
    with monkeypatch.context() as patch:
        patch.setattr(layer.rounds[1], "attend", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            layer(x[:, 4:], is_causal=True, cache=cache)
    y = layer(x[:, 4:], is_causal=True, cache=cache)
    torch.testing.assert_close(y, layer(x, is_causal=True)[:, 4:], rtol=0, atol=1e-10)


def test_refusals():
    layer, x = build("standard"), randn(2, 4, D_MODEL)
    cache = KVCache(max_len=5)
    with pytest.raises(ValueError, match=r"max_len=5.*no gradient.*torch.no_grad"):
        layer(x, is_causal=True, cache=cache)
    with pytest.raises(ValueError, match="cache must be a KVCache"):
        layer(x, is_causal=True, cache={})
    with torch.no_grad():
        layer(x, is_causal=True, cache=cache)
        with pytest.raises(ValueError, match="max_len=5 and holds 4 positions; 4 more do not fit"):
            layer(x, is_causal=True, cache=cache)
        with pytest.raises(ValueError, match="is_causal=True"):
            layer(x[:, :1], cache=cache)
        with pytest.raises(ValueError, match="memory"):
            layer(x[:, :1], memory=x, cache=cache)
        for other in (build("boosted"), build("standard")):  # a layer_index forgotten
            with pytest.raises(ValueError, match=r"filled by another layer, .*give each layer a layer_index"):
                other(x[:, :1], is_causal=True, cache=cache)
        with pytest.raises(ValueError, match=r"torch.float64, which .*torch.float32 cannot continue"):
            layer.float()(x[:, :1].float(), is_causal=True, cache=cache)
    for max_len in (0, 2.5):
        with pytest.raises(ValueError, match=f"max_len={max_len} must be an integer of at least 1"):
            KVCache(max_len=max_len)


def test_layers_of_a_model_share_one_cache():
    layers = [build("boosted", layer_index=0), build("standard", layer_index=1)]
    x, cache = randn(2, 6, D_MODEL), KVCache()
    full = layers[1](layers[0](x, is_causal=True), is_causal=True)
    pieces = [
        layers[1](layers[0](piece, is_causal=True, cache=cache), is_causal=True, cache=cache)
        for piece in x.split([3, 1, 2], dim=1)
    ]
    torch.testing.assert_close(torch.cat(pieces, dim=1), full, rtol=0, atol=1e-10)
    assert cache.length == 6


@pytest.mark.parametrize("max_len", [None, 40])
@torch.no_grad()
def test_decoding_compiles_whole(max_len):
    torch._dynamo.reset()
    layer, x = build("boosted", rope_theta=1e4), randn(2, 12, D_MODEL)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    cache = KVCache(max_len=max_len)
    pieces = [compiled(piece, is_causal=True, cache=cache) for piece in x.split([4, 1, 1, 1, 1, 4], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), layer(x, is_causal=True), rtol=0, atol=1e-10)
