"""What the checks measure, computed in another way."""

import numpy as np
import pytest
import torch

from boosted_attention import BoostedAttention
from boosted_attention.attention.trace import capture
from boosted_attention.retrieval.training import seeded
from boosted_attention.theory import energy, mart, normalization
from boosted_attention.theory.finding import gaussian, generator


def only(values: dict[str, float], part: str) -> float:
    (value,) = (v for name, v in values.items() if part in name)
    return value


def test_the_energy_has_the_update_as_its_gradient_step():
    """By finite differences of the formula."""
    draw = generator(3)
    patterns, x, beta, h = gaussian(5, 7, draw=draw), gaussian(1, 7, draw=draw), 2.0, 1e-6
    steps = h * torch.eye(7, dtype=torch.float64)
    slope = (energy.energy(x + steps, patterns, beta) - energy.energy(x - steps, patterns, beta)) / (2 * h)
    p = torch.softmax(beta * patterns @ x[0], dim=0)
    torch.testing.assert_close(slope, x[0] - p @ patterns, rtol=0, atol=1e-7)


def test_ranks_are_those_of_known_jacobians():
    """LayerNorm's has rank d - 2 without eps, d - 1 with it; zero gammas take away what they can."""
    found = normalization.post_norm_rank(1)
    assert only(found.measured, "rank in") == 10
    assert [only(found.counter, name) for name in ("eps = 1e-5", "2 zero", "3 zero")] == [11, 10, 9]
    u, gamma = torch.randn(12).double(), torch.ones(12).double()
    jacobian = normalization.jacobian(lambda v: normalization.layer_norm(v, gamma, 0.0), u)
    assert np.linalg.matrix_rank(jacobian.numpy()) == normalization.rank(jacobian) == 10
    torch.testing.assert_close(jacobian @ torch.ones(12).double(), torch.zeros(12).double())


def test_the_spread_of_the_vector_gate_is_that_of_its_layer():
    found = mart.scalar_gate_is_shrinkage(4)
    x = gaussian(2, 9, 16, draw=generator(4))
    layer = seeded(lambda: BoostedAttention(16, 2, out_proj=False), 4).double()
    with capture(layer) as traces, torch.no_grad():
        layer(x)
    gate = traces[""].rounds[1].gate
    assert gate is not None
    assert only(found.counter, "spread") == pytest.approx(np.std(gate.numpy(), ddof=1))


def test_exponents_of_the_spectrum_are_those_of_the_integrals():
    """int t^n = 1 / (n + 1); twicing's is a beta function of order n^(-1/2)."""
    found = energy.twicing_spectrum(0)
    n = np.log([64, 128, 256, 512, 1024])
    assert only(found.measured, "standard") == pytest.approx(np.polyfit(n, -np.log(np.exp(n) + 1), 1)[0], abs=1e-4)
    assert only(found.measured, "twicing") == pytest.approx(-0.5, abs=0.01)
