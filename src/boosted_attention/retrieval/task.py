"""The task: K unit patterns in R^d; a query is one of them plus Gaussian noise; the answer is the pattern.

    p_k = normalize(randn(d)),    x = p_j + sigma eps,    accuracy: is p_j the pattern nearest to the prediction?

The Bayes predictor of the squared error is the posterior mean, which is attention over the patterns,

    f(x) = sum_k p_k softmax_k(<p_k, x> / sigma^2)

and accuracy alone is best served by MAP, the pattern nearest to x itself.

Reference: the paper's Appendix C; Smart et al., "In-context denoising with one-layer transformers", ICML 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from boosted_attention.documentation import documented


@dataclass(frozen=True, kw_only=True)
class RetrievalTask:
    """Patterns and noise. The patterns are the same for every seed of training.

    Args:
        d: dimension of patterns and queries.
        n_patterns: K, the number of patterns.
        sigma: standard deviation of the noise in each dimension.
        pattern_seed: seed of the patterns.
    """

    d: int = 64
    n_patterns: int = 16
    sigma: float = 0.5
    pattern_seed: int = 42

    def patterns(self) -> Tensor:
        """The patterns (K, d), shared by all callers: not to be written to."""
        return draw_patterns(self.n_patterns, self.d, self.pattern_seed)

    def sample(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw noisy queries (n, d), and the index of the pattern behind each (n,).

        Args:
            n: number of queries.
            generator: source of randomness.
        """
        index = torch.randint(self.n_patterns, (n,), generator=generator)
        noise = torch.randn(n, self.d, generator=generator)
        return self.patterns()[index] + self.sigma * noise, index


@cache
def draw_patterns(n_patterns: int, d: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return functional.normalize(torch.randn(n_patterns, d, generator=generator), dim=-1)


@documented
@dataclass(frozen=True)
class Score:
    """Retrieval accuracy in percent, and the mean squared error per query, ||prediction - pattern||^2."""

    accuracy: float  # Percentage of predictions whose nearest pattern is the right one.
    mse: float  # Mean over queries of ||prediction - pattern||^2.


def score(prediction: Tensor, index: Tensor, patterns: Tensor) -> Score:
    """Score predictions.

    Args:
        prediction: (n, d).
        index: the pattern behind each query, (n,).
        patterns: (K, d).
    """
    nearest = torch.cdist(prediction, patterns).argmin(dim=-1)
    error = (prediction - patterns[index]).square().sum(dim=-1)
    return Score(accuracy=100 * float((nearest == index).double().mean()), mse=float(error.double().mean()))
