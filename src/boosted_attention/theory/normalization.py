"""Proposition 4: Pre-LN adds a correction to the stream as it is, Post-LN sends it through LayerNorm's Jacobian."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.model.blocks import Block
from boosted_attention.model.config import LanguageModelConfig
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


class Given(nn.Module):
    """A sublayer whose output is given, whatever it is called with."""

    def __init__(self, output: Tensor):
        super().__init__()
        self.output = output

    def forward(self, *args: Any, **call: Any) -> Tensor:
        return self.output


def block_output(norm: str, h: Tensor, f: Tensor) -> Tensor:
    """What one of our blocks makes of the stream h if its attention adds f, and its feed-forward network nothing.

    Args:
        norm: placement of the norms.
        h: the stream (D,).
        f: output of the attention (D,).
    """
    block = Block(LanguageModelConfig(d_model=D, n_heads=2, n_layers=1, norm=norm), 0).double()
    block.attention, block.ffn = Given(f), Given(torch.zeros(D, dtype=torch.float64))  # type: ignore[assignment]
    return block(h[None, None])[0, 0]


def pre_norm_adds(seed: int) -> Finding:
    """Proposition 4a: under Pre-LN, d(h + f) / df = I, measured on our own block."""
    draw = generator(seed)
    h, f, out = gaussian(D, draw=draw), gaussian(D, draw=draw), gaussian(D, D, draw=draw)
    error = float((jacobian(lambda f: block_output("pre", h, f), f) - torch.eye(D, dtype=torch.float64)).abs().max())
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


def distance_from_sum(norm: str, seed: int) -> float:
    """How far the last stream of a boosted model is from its first plus all that its sublayers gave, relatively.

    Args:
        norm: placement of the norms.
        seed: seed of the weights and of the tokens.
    """
    config = LanguageModelConfig(vocab_size=32, d_model=D, n_heads=2, max_len=8, positions="rotary", norm=norm)
    model = config.build(seed).double()
    parts: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        parts.append(output)

    for block in model.layers:
        assert isinstance(block, Block)
        for sublayer in (block.attention, block.ffn):
            sublayer.register_forward_hook(keep)
    ends: list[Tensor] = []
    model.norm.register_forward_pre_hook(lambda module, args: ends.append(args[0]))
    ids = torch.randint(32, (1, 8), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        model.hidden(ids)
        total = model.embed(ids) + sum(parts)
    return float((ends[0] - total).norm() / total.norm())


def additive_stream(seed: int) -> Finding:
    """Remark on Proposition 4: after L Pre-LN layers the stream is h_0 + sum_l f_l, measured on our own model."""
    error, gap = distance_from_sum("pre", seed), distance_from_sum("post", seed)
    return Finding(
        name="4-stream",
        paper="After L Pre-LN layers the stream is h_0 plus the sum of what the sublayers added.",
        measured={"relative difference from the sum": error},
        holds=error < 1e-12,
        condition="Under Post-LN the sum is renormalised at every layer and the decomposition fails.",
        counter={"relative difference under Post-LN": gap},
        counter_holds=gap > 0.1,
    )
