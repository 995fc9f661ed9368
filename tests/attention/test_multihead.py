"""BoostedMultiheadAttention behaves as torch.nn.MultiheadAttention does, and really runs inside torch's own layers."""

import pytest
import torch
from torch import nn

from boosted_attention import BoostedMultiheadAttention, capture
from tests.conftest import D_MODEL, N_HEADS, randn

L, S, N = 5, 7, 3


def pair(batch_first=True, kdim=None, vdim=None, **options):
    """torch's layer and ours with one round and the same weights."""
    theirs = nn.MultiheadAttention(D_MODEL, N_HEADS, batch_first=batch_first, kdim=kdim, vdim=vdim).double()
    ours = BoostedMultiheadAttention(
        D_MODEL, N_HEADS, batch_first=batch_first, kdim=kdim, vdim=vdim, n_rounds=1, **options
    ).double()
    state = {"attention.out_proj.weight": theirs.out_proj.weight, "attention.out_proj.bias": theirs.out_proj.bias}
    if kdim is None and vdim is None:
        state |= {
            "attention.rounds.0.qkv.weight": theirs.in_proj_weight,
            "attention.rounds.0.qkv.bias": theirs.in_proj_bias,
        }
    else:
        for part, bias in zip("qkv", theirs.in_proj_bias.chunk(3), strict=True):
            state[f"attention.rounds.0.{part}.weight"] = getattr(theirs, f"{part}_proj_weight")
            state[f"attention.rounds.0.{part}.bias"] = bias
    ours.load_state_dict(state)
    return ours, theirs


def assert_same(ours, theirs, *inputs, **call):
    for need_weights in (True, False):
        for average in (True, False):
            call |= {"need_weights": need_weights, "average_attn_weights": average}
            (a, a_weights), (b, b_weights) = ours(*inputs, **call), theirs(*inputs, **call)
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
            assert (a_weights is None) == (b_weights is None) == (not need_weights)
            if need_weights:
                torch.testing.assert_close(a_weights, b_weights, rtol=0, atol=1e-12)


def masks():
    causal = nn.Transformer.generate_square_subsequent_mask(L, dtype=torch.float64)
    padding = torch.tensor([[False] * L, [False] * (L - 2) + [True] * 2, [False] * (L - 1) + [True]])
    additive_padding = torch.zeros(N, L, dtype=torch.float64).masked_fill(padding, -torch.inf)
    per_head = torch.rand(N * N_HEADS, L, L, generator=torch.Generator().manual_seed(0)) > 0.7
    per_head[:, :, 0] = False  # torch gives NaN where nothing is visible
    yield "none", {}
    yield "causal", {"attn_mask": causal}
    yield "causal with hint", {"attn_mask": causal, "is_causal": True}
    yield "bool", {"attn_mask": causal < 0}
    yield "per head", {"attn_mask": per_head}
    yield "padding", {"key_padding_mask": padding}
    yield "additive padding", {"key_padding_mask": additive_padding}
    yield "both bool", {"attn_mask": causal < 0, "key_padding_mask": padding}
    yield "both additive", {"attn_mask": causal, "key_padding_mask": additive_padding}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in masks()])
def test_self_attention_equals_torch(call, batch_first):
    x = randn(N, L, D_MODEL) if batch_first else randn(L, N, D_MODEL)
    assert_same(*pair(batch_first), x, x, x, **call)


def test_mixed_masks():
    ours, _ = pair()
    x, padding = randn(N, L, D_MODEL), torch.zeros(N, L, dtype=torch.bool)
    padding[1, -2:] = True
    additive = nn.Transformer.generate_square_subsequent_mask(L, dtype=torch.float64)
    mixed, _ = ours(x, x, x, attn_mask=additive, key_padding_mask=padding)
    plain, _ = ours(x, x, x, attn_mask=additive < 0, key_padding_mask=padding)
    torch.testing.assert_close(mixed, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(("kdim", "vdim"), [(None, None), (12, None), (12, 20), (None, 20)])
def test_cross_attention_equals_torch(kdim, vdim, batch_first):
    shapes = [(N, L, D_MODEL), (N, S, kdim or D_MODEL), (N, S, vdim or D_MODEL)]
    q, k, v = (randn(*shape) if batch_first else randn(shape[1], shape[0], shape[2]) for shape in shapes)
    padding = torch.zeros(N, S, dtype=torch.bool)
    padding[0, 4:] = True
    assert_same(*pair(batch_first, kdim, vdim), q, k, v)
    assert_same(*pair(batch_first, kdim, vdim), q, k, v, key_padding_mask=padding)


def test_unbatched_equals_torch():
    x, memory = randn(L, D_MODEL), randn(S, D_MODEL)
    padding = torch.zeros(S, dtype=torch.bool)
    padding[-2:] = True
    assert_same(*pair(), x, x, x)
    assert_same(*pair(), x, memory, memory, key_padding_mask=padding)


def test_weights_are_round_zeros():
    layer, x = BoostedMultiheadAttention(D_MODEL, N_HEADS, batch_first=True).double(), randn(N, L, D_MODEL)
    with capture(layer) as traces:
        _, weights = layer(x, x, x, average_attn_weights=False)
    first, second = traces["attention"].rounds
    assert torch.equal(weights, first.weights)
    assert not torch.equal(weights, second.weights)


def test_causal_hint_alone_is_enough():
    layer, x = BoostedMultiheadAttention(D_MODEL, N_HEADS, batch_first=True).double(), randn(N, L, D_MODEL)
    mask = nn.Transformer.generate_square_subsequent_mask(L, dtype=torch.float64)
    hinted, _ = layer(x, x, x, is_causal=True)
    torch.testing.assert_close(hinted, layer(x, x, x, attn_mask=mask)[0], rtol=0, atol=1e-12)


def count_calls(layer):
    calls = []
    layer.register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch says that it declines, which is the point
def test_inside_an_encoder_in_eval_mode(padded, norm_first, nested):
    block = nn.TransformerEncoderLayer(D_MODEL, N_HEADS, 64, batch_first=True, norm_first=norm_first)
    block.self_attn = BoostedMultiheadAttention(D_MODEL, N_HEADS, batch_first=True, dropout=0.1)
    encoder = nn.TransformerEncoder(block, num_layers=2, enable_nested_tensor=nested).double().eval()
    calls = [count_calls(layer.self_attn) for layer in encoder.layers]
    x = randn(N, L, D_MODEL)
    padding = torch.zeros(N, L, dtype=torch.bool)
    padding[0, 3:] = True
    with torch.no_grad():
        y = encoder(x, src_key_padding_mask=padding if padded else None)
    assert [len(c) for c in calls] == [1, 1]
    expected = x
    for layer in encoder.layers:

        def attend(t, layer=layer):
            return layer.self_attn(t, t, t, key_padding_mask=padding if padded else None)[0]

        if norm_first:
            expected = expected + attend(layer.norm1(expected))
            expected = expected + layer.linear2(layer.activation(layer.linear1(layer.norm2(expected))))
        else:
            expected = layer.norm1(expected + attend(expected))
            expected = layer.norm2(expected + layer.linear2(layer.activation(layer.linear1(expected))))
    visible = ~padding if padded else torch.ones_like(padding)
    torch.testing.assert_close(y[visible], expected[visible], rtol=0, atol=1e-12)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_exchanged_inside_an_encoder_that_already_exists(padded, grad):
    """The encoder decided at its construction to use nested tensors; it must step aside all the same."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D_MODEL, N_HEADS, 64, dropout=0.0, batch_first=True), 2)
    for layer in encoder.layers:
        layer.self_attn = BoostedMultiheadAttention(D_MODEL, N_HEADS, batch_first=True)
    encoder = encoder.double()
    x, padding = randn(N, L, D_MODEL), torch.zeros(N, L, dtype=torch.bool)
    padding[0, 3:] = True
    call = {"src_key_padding_mask": padding} if padded else {}
    with torch.set_grad_enabled(grad):
        trained, evaluated = encoder.train()(x, **call), encoder.eval()(x, **call)
    torch.testing.assert_close(evaluated, trained, rtol=0, atol=1e-12)


def test_self_attention_can_be_declared():
    """Equal values in other objects are cross-attention, unless the layer is told otherwise."""
    x = randn(N, L, D_MODEL)
    by_identity = BoostedMultiheadAttention(D_MODEL, N_HEADS, batch_first=True).double()
    declared = BoostedMultiheadAttention(D_MODEL, N_HEADS, batch_first=True, self_attention=True).double()
    declared.load_state_dict(by_identity.state_dict())
    expected = by_identity(x, x, x)[0]
    assert not torch.allclose(by_identity(x, x.clone(), x.clone())[0], expected)
    assert torch.equal(declared(x, x.clone(), x.clone())[0], expected)
    crossed = BoostedMultiheadAttention(D_MODEL, N_HEADS, batch_first=True, self_attention=False).double()
    crossed.load_state_dict(by_identity.state_dict())
    expected = by_identity(x, x.clone(), x.clone())[0]
    torch.testing.assert_close(crossed(x, x, x)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_inside_a_decoder(training):
    block = nn.TransformerDecoderLayer(D_MODEL, N_HEADS, 64, dropout=0.0, batch_first=True)
    block.self_attn = BoostedMultiheadAttention(D_MODEL, N_HEADS, batch_first=True)
    block.multihead_attn = BoostedMultiheadAttention(D_MODEL, N_HEADS, batch_first=True)
    decoder = nn.TransformerDecoder(block, num_layers=2).double().train(training)
    calls = [count_calls(layer.multihead_attn) for layer in decoder.layers]
    x, memory = randn(N, L, D_MODEL), randn(N, S, D_MODEL)
    mask = nn.Transformer.generate_square_subsequent_mask(L, dtype=torch.float64)
    y = decoder(x, memory, tgt_mask=mask, tgt_is_causal=True)
    y.sum().backward()
    assert [len(c) for c in calls] == [1, 1]
    with torch.no_grad():
        disturbed = x.clone()
        disturbed[:, -1] += 1.0
        assert torch.equal(decoder(disturbed, memory, tgt_mask=mask)[:, :-1], decoder(x, memory, tgt_mask=mask)[:, :-1])


def test_device_and_dtype():
    layer = BoostedMultiheadAttention(8, 2, device="meta", dtype=torch.bfloat16)
    assert all(p.is_meta and p.dtype == torch.bfloat16 for p in layer.parameters())
    layer, x = BoostedMultiheadAttention(8, 2, dtype=torch.bfloat16), torch.randn(3, 2, 8, dtype=torch.bfloat16)
    assert {t.dtype for t in layer(x, x, x)} == {torch.bfloat16}


def test_has_the_attributes_of_torchs_layer():
    ours, theirs = BoostedMultiheadAttention(8, 2, dropout=0.1), nn.MultiheadAttention(8, 2, dropout=0.1)
    for name in (
        "embed_dim",
        "kdim",
        "vdim",
        "num_heads",
        "dropout",
        "batch_first",
        "head_dim",
        "bias_k",
        "add_zero_attn",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_refusals():
    layer, x = BoostedMultiheadAttention(D_MODEL, N_HEADS, batch_first=True).double(), randn(N, L, D_MODEL)
    with pytest.raises(ValueError, match="add_bias_kv=True"):
        BoostedMultiheadAttention(8, 2, add_bias_kv=True)
    with pytest.raises(ValueError, match="add_zero_attn=True"):
        BoostedMultiheadAttention(8, 2, add_zero_attn=True)
    with pytest.raises(ValueError, match=r"attn_mask has shape \(3, 3\); expected \(5, 5\) or \(12, 5, 5\)"):
        layer(x, x, x, attn_mask=torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"key_padding_mask has shape \(3, 4\); expected \(3, 5\)"):
        layer(x, x, x, key_padding_mask=torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"dtype torch.int64.*True = not allowed"):
        layer(x, x, x, attn_mask=torch.zeros(L, L, dtype=torch.int64))
    nested = torch.nested.nested_tensor([x[0], x[1, :2]])
    with pytest.raises(ValueError, match="nested tensor"):
        layer(nested, nested, nested)
    with pytest.raises(ValueError, match="query has shape"):
        layer(x[None], x[None], x[None])
    with pytest.raises(ValueError, match="memory has no order"):
        layer(x, x + 1, x + 1, is_causal=True)
    with pytest.raises(ValueError, match="memory has shapes"):
        layer(x, randn(N + 1, S, D_MODEL), randn(N + 1, S, D_MODEL))
