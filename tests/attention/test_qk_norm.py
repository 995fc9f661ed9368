"""Normalised queries and keys in every layer: the oracle's numbers, exact derivatives, caches, traces, transforms."""

import pytest
import torch
from torch.func import functional_call, stack_module_state

from boosted_attention import EquilibriumAttention, KVCache, capture
from boosted_attention.attention import reference
from boosted_attention.attention.checks import (
    MASK_KINDS,
    against_oracle,
    cached_error,
    causality_violation,
    in_order,
    sample_call,
)
from boosted_attention.attention.qk_norm import HeadNorm
from tests.conftest import D_MODEL, N_HEADS, build, disturbed, every_layer, randn, takes_memory


def normed(name, dtype=torch.float64, max_steps=90, **options):
    """A layer whose norms are not at their start, where all weights are equal."""
    if "equilibrium" in name:
        options["max_steps"] = max_steps  # normalised queries are longer, and the iteration contracts more slowly
    if "low-rank" in name:
        options["rank"] = 16  # a head of two numbers is now and then so short that its norm is all rounding error
    return disturbed(build(name, dtype, qk_norm=True, n_kv_heads=2, **options))


def assert_exact(layer, x, **call):
    wrong = [error for error in against_oracle(layer, x, **call) if not error.ok]
    assert not wrong, wrong


def test_heads_are_divided_by_their_root_mean_square():
    norm, t = HeadNorm(8).double(), randn(2, 4, 5, 8)
    torch.testing.assert_close(norm(t).square().mean(-1), torch.ones(2, 4, 5, dtype=torch.float64), rtol=1e-4, atol=0)
    torch.testing.assert_close(norm(t), norm(4.0 * t), rtol=1e-4, atol=0)


def test_its_derivative_is_what_autograd_finds():
    norm, t, change = disturbed(HeadNorm(8).double()), randn(3, 8), randn(3, 8)
    _, expected = torch.func.jvp(norm, (t,), (change,))
    torch.testing.assert_close(norm.derivative(t, change), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", every_layer())
def test_every_layer_equals_the_oracle(name, full):
    for rope_theta in (100.0, None) if full else (100.0,):
        layer = normed(name, rope_theta=rope_theta)
        for length in (1, 2, 23) if full else (7,):
            for kind in MASK_KINDS if full else ("padding",):
                call = in_order(layer, sample_call(kind, 2, N_HEADS, length, torch.float64))
                assert_exact(layer, randn(2, length, D_MODEL), **call)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", every_layer())
def test_lower_precision_is_as_good_as_the_plain_formula(name, dtype):
    layer = normed(name, dtype, max_steps=40)
    assert_exact(layer, randn(2, 13, D_MODEL, dtype=dtype), **sample_call("padding", 2, N_HEADS, 13, dtype))


@pytest.mark.parametrize("name", takes_memory())
def test_memory(name):
    assert_exact(normed(name), randn(2, 5, D_MODEL), memory=(randn(2, 7, D_MODEL), randn(2, 7, D_MODEL)))


@pytest.mark.parametrize("name", [name for name in every_layer() if "equilibrium" not in name])  # it may not contract
def test_a_learned_scale_comes_behind_the_norm(name):
    assert_exact(normed(name, scale="learned"), randn(2, 6, D_MODEL), is_causal=True)


@pytest.mark.parametrize("name", every_layer())
def test_the_past_never_sees_the_future_and_decodes_from_the_cache(name):
    layer, x = normed(name, rope_theta=1e4), randn(2, 9, D_MODEL)
    assert causality_violation(layer, x, positions=range(9)) is None
    for max_len in (None, 12):
        assert cached_error(layer, x, [4, 1, 3, 1], max_len) < 1e-10


@pytest.mark.parametrize("name", every_layer())
def test_tracing_and_compiling_change_nothing(name, full):
    layer, x = normed(name, max_steps=4, rope_theta=1e4), randn(2, 7, D_MODEL)
    expected = layer(x, is_causal=True)
    with capture(layer):
        torch.testing.assert_close(layer(x, is_causal=True), expected, rtol=0, atol=1e-12)
    if not full and name not in ("boosted", "differential", "equilibrium", "hopfield"):
        return  # compiled in make test-full
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, is_causal=True), expected, rtol=0, atol=1e-12)


def test_what_is_cached_and_traced_is_normalised_and_turned():
    layer, x, cache = build("boosted", qk_norm=True, rope_theta=1e4), randn(2, 5, D_MODEL), KVCache()
    with capture(layer) as traces:
        layer(x, is_causal=True, cache=cache)
    for m, trace in enumerate(traces[""].rounds):
        assert torch.equal(cache.layer(0).slots["k", m], trace.k)
        for t in (trace.q, trace.k):  # turning keeps the norm, and the weights are at 1
            torch.testing.assert_close(t.square().mean(-1), torch.ones_like(t[..., 0]), rtol=1e-4, atol=0)


def test_a_round_that_shares_keys_norms_its_own_queries():
    names = [n for n, _ in build("boosted-shared", qk_norm=True).named_parameters() if "norm" in n]
    assert names == ["rounds.0.q_norm.weight", "rounds.0.k_norm.weight", "rounds.1.q_norm.weight"]


@pytest.mark.parametrize("name", every_layer())
def test_autocast_keeps_the_dtype_of_attention(name):
    layer, x = normed(name, torch.float32), randn(2, 9, D_MODEL, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x, is_causal=True)
        y.float().square().sum().backward()
    assert y.dtype == torch.bfloat16
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("name", ["boosted-shared", "differential", "equilibrium"])
def test_stacked_layers_under_vmap(name):
    layers, x = [normed(name) for _ in range(2)], randn(2, 2, 5, D_MODEL)
    stacked, _ = stack_module_state(layers)

    def loss(weights, x):
        return functional_call(layers[0], weights, (x,), {"is_causal": True}).square().sum()

    gradients = torch.func.vmap(torch.func.grad(loss))(stacked, x)
    for i, layer in enumerate(layers):
        layer(x[i], is_causal=True).square().sum().backward()
        for key, p in layer.named_parameters():
            torch.testing.assert_close(gradients[key][i], p.grad, rtol=0, atol=1e-9)


@pytest.mark.parametrize("inject", [True, False])
@pytest.mark.parametrize("options", [{}, {"rope_theta": 100.0, "n_kv_heads": 2}], ids=str)
@pytest.mark.parametrize("length", [4, 12])  # the low-rank system, and the full one
def test_the_norms_derivative_enters_the_equilibriums_solve(length, options, inject):
    """The implicit gradient is that of a long unrolled iteration; without the derivative it would not be."""
    given = {"qk_norm": True, "inject": inject, "max_steps": 60, "tol": 1e-14, **options}
    layer = disturbed(EquilibriumAttention(D_MODEL, N_HEADS, **given).double())
    x = randn(1, length, D_MODEL).requires_grad_()
    y = layer(x, is_causal=True)
    weights = dict(layer.named_parameters())
    unrolled = reference.layer(layer.config, weights, x, is_causal=True)
    torch.testing.assert_close(y, unrolled, rtol=0, atol=1e-10)
    upstream = torch.randn_like(y)
    leaves = {"x": x, **weights}
    ours = torch.autograd.grad(y, list(leaves.values()), upstream)
    theirs = torch.autograd.grad(unrolled, list(leaves.values()), upstream)
    for name, a, b in zip(leaves, ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-8, msg=name)
