"""One forward pass over a text, with all that its rounds computed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from boosted_attention.analysis.survey import logits_of
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.trace import RoundTrace, Traced, capture, traced_layers
from boosted_attention.explore.lens import AnyLens, lens_of
from boosted_attention.explore.patching import Factors, patched

Check = Callable[[], None]  # raises where nobody waits for the result any more


@dataclass(frozen=True, kw_only=True)
class PassedLayer:
    """What one layer did."""

    n_rounds: int
    n_heads: int | None  # of which its estimate is made; None where it is not
    rounds: dict[int, RoundTrace]  # those that ran, by their number in the layer


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What a model made of a text of T tokens."""

    logits: Tensor  # (T, V)
    layers: list[PassedLayer]
    lens: AnyLens | None  # None where the stream cannot be read in the middle of the model


@torch.no_grad()
def run_pass(model: nn.Module, ids: Tensor, factors: Factors, check: Check, *, with_lens: bool = True) -> Pass:
    """Run a model over token ids (T,) with patched gates, and keep what every round computed.

    Args:
        model: the model, in evaluation mode.
        ids: token ids (T,).
        factors: factors of gates, as ``patched`` takes them.
        check: called before every layer.
        with_lens: whether its streams are to be read too.
    """
    layers = traced_layers(model)
    lens = lens_of(model) if with_lens else None
    with ExitStack() as block:
        block.enter_context(patched(model, factors))
        for layer in layers.values():
            hook = layer.register_forward_pre_hook(lambda module, inputs: check())
            block.callback(hook.remove)
        if lens is not None:
            block.enter_context(lens.watching())
        traces = block.enter_context(capture(model))
        logits = logits_of(model, ids[None].to(next(model.parameters()).device))  # (1, T, V)
        found = []
        for name, layer in layers.items():
            ran = [m for m in range(layer.n_rounds) if m not in layer.disabled]
            rounds = dict(zip(ran, traces[name].rounds, strict=True))
            found.append(PassedLayer(n_rounds=layer.n_rounds, n_heads=heads_of(layer), rounds=rounds))
    return Pass(
        logits=logits[0].float().cpu(), layers=found, lens=lens if lens is not None and lens.reads(logits) else None
    )


def heads_of(layer: Traced) -> int | None:
    """Return the number of heads that a layer's estimate is made of; None where it is not."""
    return layer.config.n_heads if isinstance(layer, AttentionLayer) and layer.config.space == "heads" else None


@torch.no_grad()
def plain_logits(model: nn.Module, ids: Tensor) -> Tensor:
    """Return the logits (T, V) of a model as it is."""
    return logits_of(model, ids[None].to(next(model.parameters()).device))[0].float().cpu()
