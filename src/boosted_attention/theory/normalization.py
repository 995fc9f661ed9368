"""Proposition 4: Pre-LN adds a correction to the stream as it is, Post-LN sends it through LayerNorm's Jacobian."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from boosted_attention.theory.finding import Finding, gaussian, generator

D = 12


def jacobian(function, at: Tensor) -> Tensor:
    """The Jacobian of a function from vectors to vectors, at a vector."""
    result = torch.autograd.functional.jacobian(function, at)
    assert isinstance(result, Tensor)
    return result


def rank(matrix: Tensor) -> int:
    """Numerical rank: singular values above 1e-10 of the largest."""
    values = torch.linalg.svdvals(matrix)
    return int((values > 1e-10 * values[0]).sum())


def pre_norm_adds(seed: int) -> Finding:
    """Proposition 4a: under Pre-LN, d(h + f) / df = I."""
    draw = generator(seed)
    h, f, out = gaussian(D, draw=draw), gaussian(D, draw=draw), gaussian(D, D, draw=draw)
    error = float((jacobian(lambda f: h + f, f) - torch.eye(D, dtype=torch.float64)).abs().max())
    gate = gaussian(D, draw=draw).sigmoid()
    correction = gaussian(D, draw=draw)
    effect = jacobian(lambda g: h + out @ (g * correction), gate)  # (D, D)
    touched = float((effect[:, 0].abs() > 1e-12).double().mean())
    return Finding(
        name="4a",
        paper="Under Pre-LN the stream's Jacobian with respect to the sublayer's output is the identity.",
        measured={"largest difference from the identity": error},
        holds=error == 0.0,
        condition="The gate acts before W_out, which mixes its dimensions under Pre-LN as well.",
        counter={"share of the stream's dimensions one gate dimension moves": touched},
        counter_holds=touched == 1.0,
    )


def layer_norm(u: Tensor, gamma: Tensor, eps: float) -> Tensor:
    """LayerNorm over all of u, without a bias."""
    return functional.layer_norm(u, u.shape, gamma, None, eps)


def post_norm_rank(seed: int) -> Finding:
    """Proposition 4b: under Post-LN the Jacobian is diag(gamma) / sigma (I - (1 1^T + u u^T) / d), of rank d - 2."""
    draw = generator(seed)
    u, gamma = gaussian(D, draw=draw), 1 + 0.1 * gaussian(D, draw=draw)
    measured = jacobian(lambda u: layer_norm(u, gamma, 0.0), u)
    sigma = u.std(unbiased=False)
    hat = (u - u.mean()) / sigma
    ones = torch.ones(D, dtype=torch.float64)
    formula = (
        torch.diag(gamma) / sigma @ (torch.eye(D).double() - (torch.outer(ones, ones) + torch.outer(hat, hat)) / D)
    )
    error = float((measured - formula).abs().max())
    ranks = {"eps = 0": rank(measured), "eps = 1e-5": rank(jacobian(lambda u: layer_norm(u, gamma, 1e-5), u))}
    for zeros in (2, 3):
        thin = gamma.clone()
        thin[:zeros] = 0.0
        ranks[f"{zeros} zero gammas"] = rank(jacobian(lambda u, thin=thin: layer_norm(u, thin, 0.0), u))
    return Finding(
        name="4b",
        paper="Under Post-LN that Jacobian is LayerNorm's, of rank d - 2, which couples the dimensions.",
        measured={"largest difference from the formula": error, f"rank in {D} dimensions": ranks["eps = 0"]},
        holds=error < 1e-12 and ranks["eps = 0"] == D - 2,
        condition=(
            "Rank d - 2 needs eps = 0 and at most two zero gammas; and the same Jacobian meets every sublayer, the "
            "baselines' too, so it cannot alone explain why only boosting would suffer."
        ),
        counter={f"rank, {name}": float(value) for name, value in ranks.items() if name != "eps = 0"},
        counter_holds=ranks["eps = 1e-5"] == D - 1
        and ranks["2 zero gammas"] == D - 2
        and ranks["3 zero gammas"] == D - 3,
    )


def additive_stream(seed: int) -> Finding:
    """Remark on Proposition 4: after L Pre-LN layers the stream is h_0 + sum_l f_l."""
    draw = generator(seed)
    weights = [gaussian(D, D, draw=draw) / D**0.5 for _ in range(4)]
    gamma = torch.ones(D, dtype=torch.float64)
    start = gaussian(D, draw=draw)
    pre, parts = start, []
    for w in weights:
        parts.append(torch.tanh(w @ layer_norm(pre, gamma, 1e-5)))
        pre = pre + parts[-1]
    error = float((pre - (start + sum(parts))).abs().max())
    post, parts = start, []
    for w in weights:
        parts.append(torch.tanh(w @ post))
        post = layer_norm(post + parts[-1], gamma, 1e-5)
    gap = float((post - (start + sum(parts))).norm() / post.norm())
    return Finding(
        name="4-stream",
        paper="After L Pre-LN layers the stream is h_0 plus the sum of what the sublayers added.",
        measured={"largest difference from the sum": error},
        holds=error < 1e-12,
        condition="Under Post-LN the sum is renormalised at every layer and the decomposition fails.",
        counter={"relative difference under Post-LN": gap},
        counter_holds=gap > 0.1,
    )
