"""Masks, and inputs at the edge: nothing visible, one token, empty batches, huge logits, odd strides."""

import pytest
import torch

from boosted_attention import list_attention, padding_mask
from boosted_attention.attention import reference
from boosted_attention.attention.checks import in_order
from tests.conftest import D_MODEL, N_HEADS, build, randn, takes_memory


@pytest.mark.parametrize("kernel", ["auto", "explicit"])
@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("name", list_attention())
def test_rows_that_see_nothing_are_zero_with_finite_gradients(name, additive, kernel):
    layer, x = (
        build(name, **({} if name == "boosted-output" else {"out_proj": False})),
        randn(2, 6, D_MODEL).requires_grad_(),
    )
    layer.kernel = kernel
    mask = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    mask[0, :, 2] = False
    mask[1] = False
    if additive:
        mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    y = layer(x, **in_order(layer, {"mask": mask}))
    expected = torch.zeros(D_MODEL, dtype=torch.float64)
    if name == "boosted-output":  # zero before each round's own projection: what is left is its bias
        bias = [layer.rounds[m].out_proj.bias for m in (0, 1)]
        expected = bias[0] + layer.gates[0](*bias) * bias[1]
    assert torch.allclose(y[0, 2], expected, rtol=0, atol=1e-15)
    assert torch.allclose(y[1], expected.expand(6, -1), rtol=0, atol=1e-15)
    y.square().sum().backward()
    for t in (x, *layer.parameters()):
        assert t.grad is None or t.grad.isfinite().all()


@pytest.mark.parametrize("name", list_attention())
def test_conventions_agree(name):
    """Causal flag, bool mask, additive mask and mask per head say the same thing."""
    layer, x = build(name), randn(2, 7, D_MODEL)
    allowed = torch.ones(7, 7, dtype=torch.bool).tril()
    additive = torch.zeros(7, 7, dtype=torch.float64).masked_fill(~allowed, -torch.inf)
    expected = layer(x, is_causal=True)
    for mask in (allowed, additive, allowed[None, None], allowed.expand(2, N_HEADS, 7, 7), additive.float()):
        torch.testing.assert_close(layer(x, **in_order(layer, {"mask": mask})), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(layer(x, mask=mask, is_causal=True), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", takes_memory())
def test_padded_memory_is_as_if_it_were_not_there(name):
    layer, x, memory = build(name), randn(2, 4, D_MODEL), randn(2, 6, D_MODEL)
    mask = padding_mask(torch.tensor([[1, 1, 1, 1, 0, 0]]))
    torch.testing.assert_close(layer(x, memory=memory, mask=mask), layer(x, memory=memory[:, :4]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", list_attention())
def test_one_token(name):
    layer, x = build(name), randn(2, 1, D_MODEL)
    torch.testing.assert_close(layer(x, **in_order(layer)), layer(x, is_causal=True), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", ["auto", "explicit"])
@pytest.mark.parametrize("name", list_attention())
def test_empty_batch(name, kernel):
    layer = build(name)
    layer.kernel = kernel
    x = randn(0, 5, D_MODEL).requires_grad_()
    y = layer(x, is_causal=True)
    assert y.shape == (0, 5, D_MODEL)
    y.sum().backward()
    assert layer.out_proj is None or layer.out_proj.weight.grad.abs().max() == 0


@pytest.mark.parametrize("name", list_attention())
def test_empty_sequence(name):
    layer = build(name, rope_theta=1e4)
    assert layer(randn(2, 0, D_MODEL), is_causal=True).shape == (2, 0, D_MODEL)


@pytest.mark.parametrize("kernel", ["auto", "explicit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", list_attention())
def test_huge_logits(name, dtype, kernel):
    """Logits of +-1e4: the softmax becomes a maximum and everything stays finite."""
    layer, x = build(name, dtype, scale=1e4), randn(2, 6, D_MODEL, dtype=dtype).requires_grad_()
    layer.kernel = kernel
    y = layer(x, is_causal=True)
    assert y.isfinite().all()
    y.float().square().sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("kernel", ["auto", "explicit"])
@pytest.mark.parametrize("name", [name for name in list_attention() if name != "equilibrium"])
def test_huge_logits_are_right(name, kernel):
    layer, x = build(name, scale=1e4), randn(2, 6, D_MODEL)
    layer.kernel = kernel
    expected = reference.layer(layer.config, dict(layer.named_parameters()), x, is_causal=True)
    torch.testing.assert_close(layer(x, is_causal=True), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["standard", "boosted", "twicing", "differential", "differential-v2"])
def test_a_float32_mask_keeps_its_precision_in_a_half_precision_layer(name, dtype):
    """Both kernels agree on masks that half precision cannot hold: large biases, and float32's smallest number."""
    layer, x = build(name, dtype), randn(2, 6, D_MODEL, dtype=dtype)
    bias = 1000 + torch.randn(1, 1, 6, 6)
    bias[..., 4:] = torch.finfo(torch.float32).min
    bias[..., 2, :] = torch.finfo(torch.float32).min
    fused = layer(x, mask=bias)
    layer.kernel = "explicit"
    torch.testing.assert_close(layer(x, mask=bias), fused, rtol=0.03, atol=0.03)


def test_huge_logits_pick_the_best_key():
    layer = build("standard", scale=1e4, out_proj=False, n_heads=1, bias=False)
    with torch.no_grad():
        layer.rounds[0].qkv.weight.copy_(torch.eye(D_MODEL).repeat(3, 1))
    patterns = torch.nn.functional.normalize(randn(1, 8, D_MODEL), dim=-1)
    torch.testing.assert_close(layer(patterns), patterns, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", list_attention())
def test_strides_do_not_matter(name):
    layer, x = build(name), randn(2, 7, D_MODEL)
    expected = layer(x, is_causal=True)
    transposed = x.transpose(0, 1).contiguous().transpose(0, 1)
    strided = torch.stack([x, randn(2, 7, D_MODEL)], dim=-1).flatten(2)[..., ::2]
    expanded = x[:, :1].expand(2, 7, D_MODEL)
    assert not transposed.is_contiguous()
    assert not strided.is_contiguous()
    for odd in (transposed, strided):
        torch.testing.assert_close(layer(odd, is_causal=True), expected, rtol=0, atol=1e-12)
    call = in_order(layer)
    torch.testing.assert_close(layer(expanded, **call), layer(expanded.contiguous(), **call), rtol=0, atol=1e-12)
