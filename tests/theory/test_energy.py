"""The energy and the spectrum: what their checks measure, computed in another way, and made wrong."""

import numpy as np
import pytest
import torch

from boosted_attention.theory import energy
from boosted_attention.theory.finding import gaussian, generator
from tests.theory.values import only


def test_the_energy_has_the_update_as_its_gradient_step():
    """By finite differences of the formula."""
    draw = generator(3)
    patterns, x, beta, h = gaussian(5, 7, draw=draw), gaussian(1, 7, draw=draw), 2.0, 1e-6
    steps = h * torch.eye(7, dtype=torch.float64)
    slope = (energy.energy(x + steps, patterns, beta) - energy.energy(x - steps, patterns, beta)) / (2 * h)
    p = torch.softmax(beta * patterns @ x[0], dim=0)
    torch.testing.assert_close(slope, x[0] - p @ patterns, rtol=0, atol=1e-7)


def test_exponents_of_the_spectrum_are_those_of_the_integrals():
    """int t^n = 1 / (n + 1); twicing's is a beta function of order n^(-1/2)."""
    found = energy.twicing_spectrum(0)
    n = np.log([64, 128, 256, 512, 1024])
    assert only(found.measured, "standard") == pytest.approx(np.polyfit(n, -np.log(np.exp(n) + 1), 1)[0], abs=1e-4)
    assert only(found.measured, "twicing") == pytest.approx(-0.5, abs=0.01)


def test_a_filter_that_decays_otherwise_is_found(monkeypatch):
    polyfit = np.polyfit
    monkeypatch.setattr(energy.np, "polyfit", lambda x, y, degree: polyfit(x, 1.1 * y, degree))
    assert not energy.twicing_spectrum(0).holds
