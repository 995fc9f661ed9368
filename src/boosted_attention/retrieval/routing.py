"""Learned routing between one step of attention and its converged iteration (Section 5 of the paper).

A small gate sees features of both answers and mixes them, y = g * one_step + (1 - g) * converged. Trained on the
task's own loss, does it find any use for the converged answer?
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learners.hopfield import HopfieldAttention
from boosted_attention.attention.trace import capture
from boosted_attention.retrieval.models import N_ITERATIONS

# What a gate may look at: (one-step answer, converged answer, entropy of the one-step attention) -> features
FEATURES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "outputs": lambda one, rest, entropy: torch.cat([one, rest], dim=-1),
    "difference": lambda one, rest, entropy: one - rest,
    "divergence": lambda one, rest, entropy: (one - rest).norm(dim=-1, keepdim=True),
    "entropy": lambda one, rest, entropy: entropy,
    "all": lambda one, rest, entropy: torch.cat([FEATURES[name](one, rest, entropy) for name in SEPARATE], dim=-1),
}
SEPARATE = ("outputs", "difference", "divergence", "entropy")


class Routers(nn.Module):
    """One gate for each set of features, g = sigmoid(MLP(features)), over the same trained and frozen one-step layer.

    The gates do not know each other: trained together they learn what each would alone.
    """

    def __init__(self, one_step: AttentionLayer, hidden: int = 32):
        super().__init__()
        d = one_step.config.d_model
        self.one_step = one_step.requires_grad_(False)
        self.converged = HopfieldAttention(d, 1, n_steps=N_ITERATIONS, scale="learned", out_proj=False, bias=False)
        self.converged.load_state_dict(one_step.state_dict())
        self.converged.requires_grad_(False)
        example = torch.zeros(1, d), torch.zeros(1, d), torch.zeros(1, 1)
        widths = {name: make(*example).shape[-1] for name, make in FEATURES.items()}
        self.gates = nn.ModuleDict(
            {
                name: nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, 1), nn.Sigmoid())
                for name, width in widths.items()
            }
        )

    def forward(self, x: Tensor, *, memory: Tensor) -> Tensor:
        """What each router answers, in the order of FEATURES: (B, n_features, T, d)."""
        gates, one, rest = self.route(x, memory=memory)
        return torch.stack([g * one + (1 - g) * rest for g in gates.values()], dim=1)

    def route(self, x: Tensor, *, memory: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Each gate (B, T, 1), and the two answers they mix."""
        with torch.no_grad():
            with capture(self.one_step) as traces:
                one = self.one_step(x, memory=memory)
            p = traces[""].rounds[0].weights[:, 0]  # (B, T, K)
            entropy = -torch.special.xlogy(p, p).sum(dim=-1, keepdim=True)
            rest = self.converged(x, memory=memory)
        return {name: self.gates[name](make(one, rest, entropy)) for name, make in FEATURES.items()}, one, rest
