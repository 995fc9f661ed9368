"""Iterated retrieval and fixed points: stopping by row, true implicit gradients, convergence reports."""

import pytest
import torch

from boosted_attention import EquilibriumAttention, HopfieldAttention, capture
from boosted_attention.attention import reference
from boosted_attention.attention.checks import against_oracle
from tests.conftest import D_MODEL, N_HEADS, randn


def report(layer, x, **call):
    with capture(layer) as traces:
        y = layer(x, **call)
    extra = traces[""].rounds[0].extra
    return y, extra["steps"], extra["converged"]


def test_rows_stop_on_their_own():
    """A row's result and step count are those it has alone: no row waits for another."""
    layer = HopfieldAttention(D_MODEL, N_HEADS, n_steps=50, tol=1e-3, scale=2.0).double()
    x, memory = randn(4, 5, D_MODEL), randn(4, 9, D_MODEL)
    y, steps, converged = report(layer, x, memory=memory)
    assert converged.all()
    assert steps.unique().numel() > 1
    for b in range(4):
        for t in range(5):
            alone, alone_steps, _ = report(layer, x[b : b + 1, t : t + 1], memory=memory[b : b + 1])
            assert alone_steps.item() == steps[b, t]
            torch.testing.assert_close(alone[0, 0], y[b, t], rtol=0, atol=1e-12)


@pytest.mark.parametrize("tol", [0.0, 1e-2])
def test_hopfield_with_a_stop_rule_equals_the_oracle(tol):
    layer = HopfieldAttention(D_MODEL, N_HEADS, n_steps=12, tol=tol, scale=1.0).double()
    assert all(error.ok for error in against_oracle(layer, randn(2, 6, D_MODEL), is_causal=True))


def test_steps_are_capped():
    _, steps, converged = report(HopfieldAttention(D_MODEL, N_HEADS, n_steps=2).double(), randn(2, 5, D_MODEL))
    assert (steps == 2).all()
    assert not converged.any()


@pytest.mark.parametrize("inject", [True, False])
@pytest.mark.parametrize("options", [{}, {"scale": "learned"}, {"rope_theta": 100.0, "n_kv_heads": 2}], ids=str)
def test_equilibrium_gradient_equals_a_long_unrolled_one(inject, options):
    layer = EquilibriumAttention(D_MODEL, N_HEADS, inject=inject, max_steps=400, tol=1e-14, **options).double()
    with torch.no_grad():  # far from a weak contraction, still one
        for p in layer.rounds[0].parameters():
            p.mul_(1.3 if options.get("scale") is None else 0.8)
    x = randn(2, 4, D_MODEL).requires_grad_()
    y, _, converged = report(layer, x, is_causal=True)
    assert converged.all()
    weights = dict(layer.named_parameters())
    unrolled = reference.layer(layer.config, weights, x, is_causal=True)
    torch.testing.assert_close(y, unrolled, rtol=0, atol=1e-9)
    upstream = torch.randn_like(y)
    ours = torch.autograd.grad(y, [x, *weights.values()], upstream)
    theirs = torch.autograd.grad(unrolled, [x, *weights.values()], upstream)
    for name, a, b in zip(["x", *weights], ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6, msg=name)


def test_equilibrium_is_a_fixed_point():
    layer = EquilibriumAttention(D_MODEL, N_HEADS, inject=False, tol=1e-12, out_proj=False).double()
    step = HopfieldAttention(D_MODEL, N_HEADS, n_steps=1, out_proj=False).double()
    step.load_state_dict(layer.state_dict())
    x, memory = randn(2, 5, D_MODEL), randn(2, 9, D_MODEL)
    rest = layer(x, memory=memory)
    torch.testing.assert_close(step(rest, memory=memory), rest, rtol=0, atol=1e-10)


def test_without_injection_a_contraction_forgets_the_query():
    memory, x = randn(1, 9, D_MODEL), randn(1, 5, D_MODEL).requires_grad_()
    for inject in (False, True):
        layer = EquilibriumAttention(D_MODEL, N_HEADS, inject=inject, tol=1e-12).double()
        (gradient,) = torch.autograd.grad(layer(x, memory=memory).sum(), x, allow_unused=True)
        assert (gradient is not None and gradient.abs().max() > 1e-6) == inject


def test_forward_mode_agrees_with_reverse_mode():
    layer = EquilibriumAttention(8, 2, tol=1e-14).double()
    x = randn(1, 3, 8)

    def run(x):
        return layer(x, is_causal=True)

    torch.testing.assert_close(torch.func.jacfwd(run)(x), torch.func.jacrev(run)(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_comes_to_rest(dtype):
    layer = EquilibriumAttention(64, 4).to(dtype)
    _, steps, converged = report(layer, randn(2, 32, 64, dtype=dtype), is_causal=True)
    assert converged.all()
    assert steps.max() < 20


def test_a_nan_is_not_convergence():
    x = randn(1, 4, D_MODEL)
    x[0, 2] = torch.nan
    _, _, converged = report(HopfieldAttention(D_MODEL, N_HEADS, n_steps=5, tol=1e-3).double(), x, is_causal=True)
    assert not converged[0, 2:].any()


def test_rows_that_do_not_converge_are_reported():
    layer = EquilibriumAttention(D_MODEL, N_HEADS, max_steps=2, tol=1e-12).double()
    y, steps, converged = report(layer, randn(2, 5, D_MODEL))
    assert (steps == 2).all()
    assert not converged.any()
    assert y.isfinite().all()
