"""The trained models of the retrieval tables: this library's own layers, the patterns as memory.

One head, no biases, no output projection, a learned inverse temperature per round.
"""

from __future__ import annotations

from dataclasses import dataclass

from boosted_attention.attention.layer import AttentionLayer, BoostedAttention
from boosted_attention.attention.learners.equilibrium import EquilibriumAttention
from boosted_attention.attention.learners.hopfield import HopfieldAttention
from boosted_attention.validation import require_choice

FAMILIES = ("boosted", "unrolled", "implicit", "implicit-injected")
N_ITERATIONS = 20


@dataclass(frozen=True, kw_only=True)
class RetrievalModel:
    """A model of the retrieval tables.

    Args:
        family: "boosted" (one-step attention when n_rounds=1), or attention iterated to convergence: "unrolled",
            "implicit" (gradients at the fixed point), "implicit-injected" (the query is added at every step).
        n_rounds: rounds of a boosted model.
        gate: gate of a boosted model's corrections.
        residual: what later rounds of a boosted model look at.
    """

    family: str = "boosted"
    n_rounds: int = 1
    gate: str = "vector"
    residual: str = "error"

    def build(self, d: int) -> AttentionLayer:
        """Build the layer for patterns of dimension ``d``."""
        require_choice("family", self.family, FAMILIES)
        if self.family == "unrolled":
            return HopfieldAttention(d, 1, n_steps=N_ITERATIONS, scale="learned", out_proj=False, bias=False)
        if self.family != "boosted":
            inject = self.family == "implicit-injected"
            return EquilibriumAttention(
                d, 1, inject=inject, max_steps=N_ITERATIONS, scale="learned", out_proj=False, bias=False
            )
        return BoostedAttention(
            d,
            1,
            n_rounds=self.n_rounds,
            gate=self.gate,
            residual=self.residual,
            scale="learned",
            out_proj=False,
            bias=False,
        )
