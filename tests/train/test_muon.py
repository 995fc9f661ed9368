"""Muon: the update against singular values, torch's own optimizer, and matrices that are not packed."""

import pytest
import torch
from torch import nn

from boosted_attention.train import muon
from boosted_attention.train.muon import COEFFICIENTS, ITERATIONS, Muon, orthogonalised

SHAPES = [(16, 16), (16, 16), (48, 16), (16, 48), (7, 33), (33, 7), (1, 5), (5, 1), (1, 1)]
SETTINGS = {"lr": 0.02, "weight_decay": 0.1}


def matrices(shapes, dtype=torch.float32):
    return [nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes]


def copies(parameters):
    return [nn.Parameter(p.detach().clone()) for p in parameters]


def train(optimizer, parameters, steps=3):
    """Updates with gradients that are the same for parameters of the same shapes."""
    draw = torch.Generator().manual_seed(7)
    for _ in range(steps):
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=draw).to(p.dtype)
        optimizer.step()


def on_singular_values(matrix):
    """What the iteration is, without a product of matrices: a polynomial of every singular value."""
    a, b, c = COEFFICIENTS
    u, s, vh = torch.linalg.svd(matrix / matrix.norm(), full_matrices=False)
    for _ in range(ITERATIONS):
        s = a * s + b * s**3 + c * s**5
    return u * s @ vh


@pytest.mark.parametrize("shape", sorted(set(SHAPES)))
def test_the_iteration_is_a_polynomial_of_the_singular_values(shape):
    stack = torch.randn(3, *shape, dtype=torch.float64)
    for one, made in zip(stack, orthogonalised(stack), strict=True):
        torch.testing.assert_close(made, on_singular_values(one), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_directions_move_about_equally_far(dtype):
    made = orthogonalised(torch.randn(2, 24, 48, dtype=dtype))
    assert made.dtype == dtype
    assert torch.equal(made, made.bfloat16().to(dtype)) == (dtype == torch.float32)  # float64 is not rounded
    values = torch.linalg.svdvals(made.double())
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_it_is_torchs_muon_on_plain_matrices():
    """Momentum is equal bit for bit; updates, which are rounded on the way, are as near to exact ones as torch's."""
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    ours = matrices(SHAPES)
    theirs, exact, before = copies(ours), [nn.Parameter(p.detach().double()) for p in ours], copies(ours)
    mine, its = Muon(ours, **SETTINGS), torch.optim.Muon(theirs, **SETTINGS, adjust_lr_fn="match_rms_adamw")
    for optimizer, parameters in ((mine, ours), (its, theirs), (Muon(exact, **SETTINGS), exact)):
        train(optimizer, parameters)
    for p, q in zip(ours, theirs, strict=True):
        assert torch.equal(mine.state[p]["momentum_buffer"], its.state[q]["momentum_buffer"])
    moved, torchs, exactly = (
        torch.cat([(p.double() - start).flatten() for p, start in zip(parameters, before, strict=True)])
        for parameters in (ours, theirs, exact)
    )
    assert (moved - exactly).norm() < 1.2 * (torchs - exactly).norm()
    assert (torchs - exactly).norm() < 0.02 * exactly.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [(16, 16, 16), (16, 4, 4), (32, 16, 7), (1, 2, 3)])
def test_packed_matrices_are_updated_as_if_they_were_apart(rows, dtype):
    packed = nn.Parameter(torch.randn(sum(rows), 16, dtype=dtype))
    apart = copies(packed.split(rows))
    gradient = torch.randn_like(packed)
    gradient[: rows[0]] *= 100.0  # loud rows must not take the update of quiet ones
    packed.grad = gradient.clone()
    for p, g in zip(apart, gradient.split(rows), strict=True):
        p.grad = g.clone()
    whole = packed.detach().clone()
    Muon([packed], **SETTINGS, divisions={packed: lambda t: t.split(rows)}).step()
    Muon(apart, **SETTINGS).step()
    assert torch.equal(packed, torch.cat(apart))
    undivided = nn.Parameter(whole)
    undivided.grad = gradient
    Muon([undivided], **SETTINGS).step()
    assert not torch.allclose(undivided, packed, atol=1e-2 * SETTINGS["lr"])


def test_parts_may_be_columns_or_interleaved():
    weight, gradient = torch.randn(2, 24, 12, dtype=torch.float64)
    for divide in (lambda t: t.chunk(3, dim=-1), lambda t: t.unflatten(0, (-1, 3, 4)).unbind(1)):
        packed = nn.Parameter(weight.clone())
        packed.grad = gradient
        apart = [nn.Parameter(part.flatten(0, -2).clone()) for part in divide(weight)]
        for p, part in zip(apart, divide(gradient), strict=True):
            p.grad = part.flatten(0, -2)
        Muon([packed], **SETTINGS, divisions={packed: divide}).step()
        Muon(apart, **SETTINGS).step()
        for p, part in zip(apart, divide(packed), strict=True):
            assert torch.equal(p, part.flatten(0, -2))


def test_matrices_of_one_shape_go_through_one_iteration(monkeypatch):
    seen = []
    monkeypatch.setattr(muon, "orthogonalised", lambda stack: seen.append(stack.shape) or orthogonalised(stack))
    packed = matrices([(24, 8), (8, 8), (8, 8), (8, 24)])
    groups = [{"params": packed[:2], "lr": 0.1}, {"params": packed[2:], "lr": 0.2}]
    optimizer = Muon(groups, **SETTINGS, divisions={packed[0]: lambda t: t.chunk(3)})
    train(optimizer, packed, steps=1)
    assert sorted(seen) == [(1, 8, 24), (5, 8, 8)]


def test_small_batches_give_the_same_update(monkeypatch):
    """A bound on what is put together at once changes nothing."""
    ours = matrices(SHAPES, torch.float64)
    theirs = copies(ours)
    train(Muon(ours, **SETTINGS), ours)
    monkeypatch.setattr(muon, "BATCH_ELEMENTS", 300)
    train(Muon(theirs, **SETTINGS), theirs)
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-14)


def test_an_update_is_as_large_as_adamws():
    """A root mean square of 0.2 times the learning rate, whatever the shape and however large the gradient."""
    parameters = matrices([(64, 64), (64, 256), (256, 64)])
    before = copies(parameters)
    for scale, p in zip((1e-4, 1.0, 1e4), parameters, strict=True):
        p.grad = scale * torch.randn_like(p)
    Muon(parameters, lr=0.02).step()
    for p, q in zip(parameters, before, strict=True):
        assert float((p - q).detach().square().mean().sqrt()) == pytest.approx(0.2 * 0.02, rel=0.15)


def test_without_a_gradient_nothing_moves():
    still, zero = matrices([(4, 6), (4, 6)])
    before = copies([still, zero])
    zero.grad = torch.zeros_like(zero)
    optimizer = Muon([still, zero], lr=0.02, weight_decay=0.0)
    optimizer.step()
    assert torch.equal(still, before[0])
    assert torch.equal(zero, before[1])
    assert still not in optimizer.state
