"""Learned routing between one step of attention and its converged iteration (Section 5 of the paper).

A small gate sees features of both answers and mixes them, y = g * one_step + (1 - g) * converged. Trained on the
task's own loss, does it find any use for the converged answer?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learners.hopfield import HopfieldAttention
from boosted_attention.attention.trace import capture
from boosted_attention.documentation import documented
from boosted_attention.retrieval.models import N_ITERATIONS
from boosted_attention.retrieval.task import RetrievalTask, Score, score
from boosted_attention.retrieval.training import test_set

# What a gate looks at: (one-step answer, converged answer, entropy of the one-step attention) -> features
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

    The gates share no weights: trained together they learn what each would learn alone.

    Args:
        one_step: a trained layer of one round; its weights are frozen.
        hidden: width of each gate's hidden layer.
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
        """Answer queries (B, T, d) once per router, in the order of FEATURES: (B, n_features, T, d)."""
        gates, one, rest = self.route(x, memory=memory)
        return torch.stack([g * one + (1 - g) * rest for g in gates.values()], dim=1)

    def route(self, x: Tensor, *, memory: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Compute each gate (B, T, 1), and the two answers the gates mix."""
        with torch.no_grad():
            with capture(self.one_step) as traces:
                one = self.one_step(x, memory=memory)
            p = traces[""].rounds[0].weights[:, 0]  # (B, T, K)
            entropy = -torch.special.xlogy(p, p).sum(dim=-1, keepdim=True)
            rest = self.converged(x, memory=memory)
        return {name: self.gates[name](make(one, rest, entropy)) for name, make in FEATURES.items()}, one, rest


@documented
@dataclass(frozen=True, kw_only=True)
class RoutingResult:
    """One trained router on the test set, beside the two answers it mixes."""

    routed: Score  # Score of the mixed answer.
    one_step: Score  # Score of one step of attention.
    converged: Score  # Score of the converged iteration.
    weight_on_one_step: float  # Mean gate, the weight on the one-step answer, from 0 to 1.
    chose_one_step: float  # Percentage of queries whose gate is above one half.


@torch.no_grad()
def score_routes(routers: Routers, task: RetrievalTask, size: int) -> dict[str, RoutingResult]:
    """Score every router, by the features it sees.

    Args:
        routers: the trained routers.
        task: patterns and noise.
        size: queries of the test set.
    """
    x, index = test_set(task, size)
    patterns = task.patterns()
    gates, one, rest = routers.route(x[None], memory=patterns[None])
    return {
        name: RoutingResult(
            routed=score((g * one + (1 - g) * rest)[0], index, patterns),
            one_step=score(one[0], index, patterns),
            converged=score(rest[0], index, patterns),
            weight_on_one_step=float(g.mean()),
            chose_one_step=100 * float((g > 0.5).double().mean()),
        )
        for name, g in gates.items()
    }
