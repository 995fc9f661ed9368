"""Learned routing between one step of attention and its converged iteration (Section 5 of the paper).

A small gate sees features of both answers and mixes them, y = g * one_step + (1 - g) * converged. Trained on the
task's own loss, does it find any use for the converged answer?
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from boosted_attention.attention.hopfield import HopfieldAttention
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.trace import capture
from boosted_attention.names import require_choice
from boosted_attention.retrieval.models import N_ITERATIONS

# What the gate may look at: (one-step answer, converged answer, entropy of the one-step attention) -> features
FEATURES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "outputs": lambda one, rest, entropy: torch.cat([one, rest], dim=-1),
    "difference": lambda one, rest, entropy: one - rest,
    "divergence": lambda one, rest, entropy: (one - rest).norm(dim=-1, keepdim=True),
    "entropy": lambda one, rest, entropy: entropy,
    "all": lambda one, rest, entropy: torch.cat(
        [one, rest, one - rest, (one - rest).norm(dim=-1, keepdim=True), entropy], dim=-1
    ),
}
FEATURE_WIDTHS = {
    "outputs": lambda d: 2 * d,
    "difference": lambda d: d,
    "divergence": lambda d: 1,
    "entropy": lambda d: 1,
}
FEATURE_WIDTHS["all"] = lambda d: 3 * d + 2


class Router(nn.Module):
    """g = sigmoid(MLP(features)), one number per query, over a trained and frozen one-step layer."""

    def __init__(self, one_step: AttentionLayer, features: str, hidden: int = 32):
        super().__init__()
        require_choice("features", features, FEATURES)
        d = one_step.config.d_model
        self.features = features
        self.one_step = one_step.requires_grad_(False)
        self.converged = HopfieldAttention(d, 1, n_steps=N_ITERATIONS, temperature="learned", out=False, bias=False)
        self.converged.load_state_dict(one_step.state_dict())
        self.converged.requires_grad_(False)
        width = FEATURE_WIDTHS[features](d)
        self.gate = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, 1), nn.Sigmoid())

    def forward(self, x: Tensor, *, memory: Tensor) -> Tensor:
        g, one, rest = self.route(x, memory=memory)
        return g * one + (1 - g) * rest

    def route(self, x: Tensor, *, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gate (B, T, 1) and the two answers it mixes."""
        with torch.no_grad():
            with capture(self.one_step) as traces:
                one = self.one_step(x, memory=memory)
            p = traces[""].rounds[0].weights[:, 0]  # (B, T, K)
            entropy = -torch.special.xlogy(p, p).sum(dim=-1, keepdim=True)
            rest = self.converged(x, memory=memory)
            features = FEATURES[self.features](one, rest, entropy)
        return self.gate(features), one, rest
