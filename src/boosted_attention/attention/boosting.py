"""The boosting loop: Algorithm 1 of the paper, written once.

Standard attention is this loop with one learner. The loop does not depend on projections or spaces: a learner is any
function of the right shape, such as a pretrained model's own attention module.

Reference: Friedman, "Greedy function approximation: a gradient boosting machine", 2001 (the loop), and
"Gradient Boosting within a Single Attention Layer", Algorithm 1 (attention as the base learner).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from torch import Tensor

Learner = Callable[[Tensor], Tensor]
Gate = Callable[[Tensor, Tensor], Tensor]
ResidualRule = Callable[[Tensor, Tensor], Tensor]


class Halting(Protocol):
    """A rule by which tokens leave the loop."""

    def go_on(self, x: Tensor, estimate: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return input and estimate of the tokens that take another round, (B', T', D) each; None ends the loop."""
        ...

    def finish(self, estimate: Tensor) -> Tensor:
        """Return what the loop gives, (B, T, D), after the last round of the tokens that were left."""
        ...


class RoundObserver(Protocol):
    """A function called once per round with what the round looked at and what it did; round 0 has no gate."""

    def __call__(
        self, m: int, *, residual: Tensor, correction: Tensor, gate: Tensor | None, estimate: Tensor
    ) -> None: ...


def boosting(
    x: Tensor,
    learners: Sequence[Learner],
    gates: Iterable[Gate],
    residuals: Iterable[ResidualRule],
    observe: RoundObserver | None = None,
    halting: Halting | None = None,
) -> Tensor:
    """Run one learner per round, each on what is still missing, each added through its gate.

        F_0 = f_0(x);   r_m = x - F_{m-1};   c_m = f_m(r_m);   F_m = F_{m-1} + g_m(F_{m-1}, c_m) * c_m

    Reference: "Gradient Boosting within a Single Attention Layer", Algorithm 1, https://arxiv.org/abs/2604.03190

    Args:
        x: the layer's input (B, T, D).
        learners: one function (B, T, D) -> (B, T, D) per round.
        gates: one function (F, c) -> g per correction, g of shape (B, T, D), (B, T, 1), (D,) or ().
        residuals: one function (x, F) -> r per correction, what it looks at.
        observe: called after every round.
        halting: rule by which tokens leave the loop before its end; None keeps all of them.

    Returns:
        The last estimate F_{M-1} (B, T, D), or what ``halting`` makes of the estimates.
    """
    estimate = learners[0](x)  # (B, T, D)
    if observe is not None:
        observe(0, residual=x, correction=estimate, gate=None, estimate=estimate)
    for m, (learner, gate, residual) in enumerate(zip(learners[1:], gates, residuals, strict=True), start=1):
        if halting is not None:
            left = halting.go_on(x, estimate)
            if left is None:
                break
            x, estimate = left
        r = residual(x, estimate)  # (B, T, D)
        c = learner(r)  # (B, T, D)
        g = gate(estimate, c)  # (B, T, D), (B, T, 1), (D,) or ()
        estimate = estimate + g * c
        if observe is not None:
            observe(m, residual=r, correction=c, gate=g, estimate=estimate)
    return estimate if halting is None else halting.finish(estimate)
