"""The past never sees the future; analytic gradients are the numerical ones."""

import pytest
import torch

from boosted_attention.attention.checks import causality_violation, in_order
from tests.conftest import D_MODEL, build, every_layer, randn


@pytest.mark.parametrize("kernel", ["auto", "explicit"])
@pytest.mark.parametrize("name", every_layer())
def test_perturbing_the_future_leaves_the_past_bit_identical(name, kernel, full):
    layer = build(name, rope_theta=1e4)
    layer.kernel = kernel
    length = 40 if full else 12
    assert causality_violation(layer, randn(2, length, D_MODEL), positions=range(length)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["boosted", "twicing", "differential"])
def test_longer_than_a_kernel_block(name, dtype):
    layer, x = build(name, dtype), randn(1, 300, D_MODEL, dtype=dtype)
    assert causality_violation(layer, x, positions=(1, 127, 128, 255, 256, 299)) is None


@pytest.mark.parametrize("name", every_layer())
def test_a_leak_would_be_found(name):
    """The check itself can fail: without the mask, or read backwards where that is refused, every layer leaks."""
    layer = build(name)
    forward = layer.forward
    if in_order(layer):
        layer.forward = lambda x, is_causal: forward(x.flip(1), is_causal=True).flip(1)
    else:
        layer.forward = lambda x, is_causal: forward(x)
    assert causality_violation(layer, randn(2, 6, D_MODEL), positions=range(6)) is not None


@pytest.mark.parametrize("name", every_layer())
def test_gradcheck(name):
    layer = build(name, d_model=8, n_heads=2)
    parameters = dict(layer.named_parameters())

    def run(x, *weights):
        replaced = dict(zip(parameters, weights, strict=True))
        return torch.func.functional_call(layer, replaced, (x,), {"is_causal": True})

    assert torch.autograd.gradcheck(run, (randn(1, 3, 8).requires_grad_(), *parameters.values()))


@pytest.mark.parametrize("name", ["boosted", "twicing", "differential-v2"])
def test_second_derivatives_on_the_explicit_kernel(name):
    layer = build(name, d_model=8, n_heads=2)
    layer.kernel = "explicit"
    x = randn(1, 3, 8).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: layer(x, is_causal=True), (x,))
