"""Traces: everything one forward pass of a layer computed, round by round.

    with capture(model) as traces:
        model(x)
    traces["layers.0.attention"].rounds[1].gate

A trace is filled only when passed or captured, and always shows the latest forward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from boosted_attention.documentation import documented
from boosted_attention.validation import require


class ModuleTree(Protocol):
    """Anything with named modules inside, as every ``nn.Module`` is."""

    def named_modules(self) -> Iterable[tuple[str, nn.Module]]:
        """Return all modules with their names."""
        ...


class RoundTrace:
    """One round: ``residual`` is its input (x itself in round 0), ``estimate`` the partial sum F_m after it.

    Shapes: q (B, H, T, dh), k and v (B, H_kv, S, dh), weights (B, H, T, S), residual, correction and estimate
    (B, T, D), gate (B, T, D), (B, T, 1) or (B, T, H), None in round 0. A round without an attention map, as ``has_map``
    says, has neither q, k and v nor scale and weights.
    """

    q: Tensor  # (B, H, T, dh)
    k: Tensor  # (B, H_kv, S, dh)
    v: Tensor  # (B, H_kv, S, dh)
    scale: float  # on the scores q k^T
    weights: Tensor  # (B, H, T, S)
    residual: Tensor  # (B, T, D)
    correction: Tensor  # (B, T, D); round 0: the first estimate
    gate: Tensor | None  # (B, T, D), (B, T, 1) shared by all, or (B, T, H) inside the correction; None in round 0
    factor: Tensor | None  # what the correction is multiplied by: the gate, unless that is inside the correction
    head_gate: Tensor | None  # (B, T, H) of a gate inside the correction; None where there is none
    estimate: Tensor  # (B, T, D)
    extra: dict[str, Tensor]  # what only this learner has, such as "lambda" or "steps"

    def __init__(self) -> None:
        self.extra, self.head_gate = {}, None

    @property
    def added(self) -> Tensor:
        """What the round added to the estimate, (B, T, D)."""
        return self.correction if self.factor is None else self.factor * self.correction

    @property
    def has_map(self) -> bool:
        """Whether the round has an attention map."""
        return hasattr(self, "weights")


@documented
@dataclass
class LayerTrace:
    """The rounds of one layer's latest forward pass."""

    rounds: list[RoundTrace] = field(default_factory=list)  # Traces of the rounds, in order.
    rounds_taken: Tensor | None = None  # Rounds that each token (B, T) took; None where it does not decide.

    @property
    def mean_rounds(self) -> float:
        """Mean over the tokens of the rounds they took."""
        return float(len(self.rounds)) if self.rounds_taken is None else float(self.rounds_taken.mean())

    def begin(self, n_rounds: int) -> None:
        """Forget the last forward pass."""
        self.rounds, self.rounds_taken = [RoundTrace() for _ in range(n_rounds)], None

    def note_halting(self, rounds_taken: Tensor, weights: list[Tensor]) -> None:
        """Write down how many rounds each token (B, T) took, and the weight of each round's estimate."""
        self.rounds_taken = rounds_taken
        for trace, weight in zip(self.rounds, weights, strict=True):
            trace.extra["halting_weight"] = weight

    def observe(self, m: int, *, residual: Tensor, correction: Tensor, gate: Tensor | None, estimate: Tensor) -> None:
        """Write down a round; this is the boosting loop's observer."""
        trace = self.rounds[m]
        if gate is not None and gate.ndim < 3:
            gate = gate.expand(*correction.shape[:2], *(gate.shape or (1,)))  # (B, T, D) or (B, T, 1)
        trace.residual, trace.correction, trace.factor, trace.estimate = residual, correction, gate, estimate
        trace.gate = gate if gate is None or trace.head_gate is None else gate * trace.head_gate


class Traced(nn.Module):
    """A module of rounds that writes into ``trace`` when one is set on it, and leaves out the ``disabled`` ones."""

    n_rounds: int
    rounds: Any  # a container of learners, one per round
    gates: nn.ModuleList  # one gate per correction
    residuals: nn.ModuleList  # one residual rule per correction

    def __init__(self):
        super().__init__()
        self.trace: LayerTrace | None = None
        self.disabled: frozenset[int] = frozenset()

    @property
    def corrections(self) -> Sequence[nn.Module]:
        """Learners of the rounds behind the first, in order."""
        return list(self.rounds.children())[1:]


def traced_layers(model: ModuleTree) -> dict[str, Traced]:
    """Return every attention layer of a model by its name, in order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Traced)}


@contextmanager
def capture(model: ModuleTree) -> Iterator[dict[str, LayerTrace]]:
    """Trace every attention layer of ``model`` inside the block.

    Args:
        model: any module that contains attention layers of boosted_attention.

    Yields:
        {module name: LayerTrace}, each filled by the latest forward pass of its layer.
    """
    layers = traced_layers(model)
    require(bool(layers), f"capture: {type(model).__name__} contains no attention layer of boosted_attention")
    before = {name: layer.trace for name, layer in layers.items()}
    traces = {name: LayerTrace() for name in layers}
    try:
        for name, layer in layers.items():
            layer.trace = traces[name]
        yield traces
    finally:
        for name, layer in layers.items():
            layer.trace = before[name]


@contextmanager
def first_maps(model: ModuleTree) -> Iterator[list[Tensor]]:
    """Collect the attention weights of every layer's round 0 inside the block, as often as a layer is applied.

    Args:
        model: any module that contains attention layers of boosted_attention.

    Yields:
        A list that each application of a layer extends by its weights, (B, H, T, S).
    """
    maps: list[Tensor] = []
    with capture(model) as traces, ExitStack() as hooks:
        for name, layer in traced_layers(model).items():
            trace = traces[name]
            hook = layer.register_forward_hook(lambda *_, trace=trace: maps.append(trace.rounds[0].weights))
            hooks.callback(hook.remove)
        yield maps
