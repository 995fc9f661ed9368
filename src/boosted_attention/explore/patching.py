"""Rounds that are switched off or weighed otherwise, for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from boosted_attention.attention.switch import disable_rounds
from boosted_attention.attention.trace import traced_layers
from boosted_attention.validation import is_number, require

LARGEST_FACTOR = 4.0

Factors = Mapping[tuple[int, int], float]  # of gates, by layer and round


@contextmanager
def patched(model: nn.Module, factors: Factors) -> Iterator[None]:
    """Multiply gates inside the block; a factor of 0 leaves the round out, as ``disable_rounds`` does.

    Args:
        model: any module that contains attention layers of boosted_attention.
        factors: factor of each gate that is to change, by layer from 0 and round from 1.
    """
    layers = list(traced_layers(model).values())
    with ExitStack() as undo:
        for (layer, m), factor in factors.items():
            require(0 <= layer < len(layers), f"layer={layer}: the model has {len(layers)}, from 0 on")
            rounds = layers[layer].n_rounds
            require(1 <= m < rounds, f"round={m}: layer {layer} has corrections 1 to {rounds - 1}")
            require(
                is_number(factor) and 0 <= factor <= LARGEST_FACTOR,
                f"factor={factor!r} must lie between 0 and {LARGEST_FACTOR:g}",
            )
            if factor == 0:
                undo.enter_context(disable_rounds(model, layers=layer, rounds=m))
            elif factor != 1:
                hook = layers[layer].gates[m - 1].register_forward_hook(scaled_by(factor))
                undo.callback(hook.remove)
        yield


def scaled_by(factor: float):
    """Return a forward hook that multiplies a gate."""

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], gate: Tensor) -> Tensor:
        return factor * gate

    return hook
