"""Equation 3, the energy behind retrieval, and the remark on twicing's spectrum."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from boosted_attention.theory.erasure import retrieve, unit_patterns
from boosted_attention.theory.finding import Finding, gaussian, generator


def energy(x: Tensor, patterns: Tensor, beta: float) -> Tensor:
    """E(xi) = -log sum exp(beta X^T xi) / beta + ||xi||^2 / 2, for queries (n, d)."""
    return -torch.logsumexp(beta * x @ patterns.T, dim=-1) / beta + 0.5 * x.square().sum(dim=-1)


def update_is_descent(seed: int) -> Finding:
    """Equation 3: the retrieval step is xi - grad E(xi), and E never rises along it."""
    draw, beta = generator(seed), 4.0
    patterns, x = unit_patterns(8, 16, draw), gaussian(50, 16, draw=draw).requires_grad_()
    (gradient,) = torch.autograd.grad(energy(x, patterns, beta).sum(), x)
    error = float((x - gradient - retrieve(x, patterns, beta)).detach().abs().max())
    state, rise = x.detach(), 0.0
    for _ in range(50):
        new = retrieve(state, patterns, beta)
        rise = max(rise, float((energy(new, patterns, beta) - energy(state, patterns, beta)).max()))
        state = new
    step = 3.0  # the same direction, too far
    far = x.detach() - step * gradient
    worse = float((energy(far, patterns, beta) > energy(x.detach(), patterns, beta)).double().mean())
    return Finding(
        name="energy",
        paper="The update is xi minus the energy's gradient, and the energy never rises along it.",
        measured={"largest difference from xi - grad E": error, "largest rise in 50 steps": rise},
        holds=error < 1e-12 and rise < 1e-12,
        condition="Descent belongs to the step size one: it is the concave-convex step, and a longer step can climb.",
        counter={"share of queries whose energy rises at three times the step": worse},
        counter_holds=worse > 0.5,
    )


def three_kinds_of_fixed_point(seed: int) -> Finding:
    """Fixed points by inverse temperature: the average of all, of a cluster, or one pattern."""
    draw = generator(seed)
    centres = unit_patterns(2, 32, draw)
    patterns = functional.normalize(centres.repeat_interleave(4, dim=0) + 0.06 * gaussian(8, 32, draw=draw), dim=-1)

    low, middle, high = (weights_at_rest(patterns, beta) for beta in (0.5, 8.0, 200.0))
    measured = {
        "beta 0.5: largest weight": float(low.max()),
        "beta 8: weight on the own cluster": float(middle[:4].sum()),
        "beta 8: largest weight": float(middle.max()),
        "beta 200: weight on the own pattern": float(high[0]),
    }
    spread = unit_patterns(8, 32, draw)
    task = {beta: float(weights_at_rest(spread, beta).max()) for beta in (0.5, 8.0, 200.0)}
    metastable = [beta for beta, w in task.items() if 0.3 < w < 0.9]
    return Finding(
        name="fixed-points",
        paper="There are three kinds of fixed point: the global average, averages over subsets, single patterns.",
        measured=measured,
        holds=bool(low.max() < 0.2 and middle[:4].sum() > 0.99 and middle.max() < 0.5 and high[0] > 0.99),
        condition="The middle kind needs patterns that come in groups; well separated ones go from average to single.",
        counter={f"separated patterns, beta {beta}: largest weight": w for beta, w in task.items()},
        counter_holds=not metastable,
    )


def weights_at_rest(patterns: Tensor, beta: float) -> Tensor:
    """Attention weights at the fixed point that iteration reaches from the first pattern."""
    x = patterns[:1]
    for _ in range(5000):
        x = retrieve(x, patterns, beta)
    return (beta * patterns @ x[0]).softmax(-1)


def twicing_spectrum(seed: int) -> Finding:
    """Remark on twicing: capacity after n layers is the integral of p(lambda)^n over eigenvalues, p the filter."""
    from scipy.integrate import quad  # slow to import, and every command of the lab imports this package

    depths = np.array([64, 128, 256, 512, 1024])

    def slope(filter_, top: float) -> float:
        capacity = [quad(lambda t, n=n: filter_(t) ** n, 0, top, points=[max(0.0, top - 2 / n)])[0] for n in depths]
        return float(np.polyfit(np.log(depths), np.log(capacity), 1)[0])

    standard, twicing = (slope(f, 1.0) for f in (lambda t: t, lambda t: 2 * t - t * t))
    bounded = slope(lambda t: 2 * t - t * t, 0.8)
    return Finding(
        name="3-spectrum",
        paper="Twicing's filter 2 lambda - lambda^2 slows the decay of capacity with depth n from 1/n to 1/sqrt(n).",
        measured={"exponent, standard": standard, "exponent, twicing": twicing},
        holds=abs(standard + 1) < 0.02 and abs(twicing + 0.5) < 0.02,
        condition="That is for a spectrum that reaches 1 evenly; bounded away from 1, twicing decays exponentially.",
        counter={"apparent exponent with eigenvalues up to 0.8": bounded},
        counter_holds=bounded < -2,
    )
