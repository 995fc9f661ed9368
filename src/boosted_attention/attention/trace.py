"""What a layer can tell about one forward pass, round by round.

    with capture(model) as traces:
        model(x)
    traces["layers.0.attention"].rounds[1].gate

A trace is filled only when passed or captured, and always shows the latest forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn

from boosted_attention.validation import require


class RoundTrace:
    """One round. ``residual`` is what it looked at (x itself in round 0), ``estimate`` the partial sum F_m after it."""

    q: Tensor  # (B, H, T, dh)
    k: Tensor  # (B, H_kv, S, dh)
    v: Tensor  # (B, H_kv, S, dh)
    scale: float  # on the scores q k^T
    weights: Tensor  # (B, H, T, S)
    residual: Tensor  # (B, T, D)
    correction: Tensor  # (B, T, D); round 0: the first estimate
    gate: Tensor | None  # (B, T, D) or (); None in round 0
    estimate: Tensor  # (B, T, D)
    extra: dict[str, Tensor]  # what only this learner has, such as "lambda" or "steps"

    def __init__(self) -> None:
        self.extra = {}


@dataclass
class LayerTrace:
    """The rounds of one layer's latest forward pass."""

    rounds: list[RoundTrace] = field(default_factory=list)

    def begin(self, n_rounds: int) -> None:
        self.rounds = [RoundTrace() for _ in range(n_rounds)]

    def observe(self, m: int, *, residual: Tensor, correction: Tensor, gate: Tensor | None, estimate: Tensor) -> None:
        """The boosting loop's observer."""
        trace = self.rounds[m]
        trace.residual, trace.correction, trace.gate, trace.estimate = residual, correction, gate, estimate


class Traced(nn.Module):
    """A module of rounds that writes into ``trace`` when one is set on it, and leaves out the ``disabled`` ones."""

    n_rounds: int

    def __init__(self):
        super().__init__()
        self.trace: LayerTrace | None = None
        self.disabled: frozenset[int] = frozenset()


def traced_layers(model: nn.Module) -> dict[str, Traced]:
    """Every attention layer of a model by its name, in order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Traced)}


@contextmanager
def capture(model: nn.Module) -> Iterator[dict[str, LayerTrace]]:
    """Trace every attention layer of ``model`` inside the block: {module name: LayerTrace}."""
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
