"""The logit lens of a round: what the model would predict from the stream behind it, and from the one before.

The stream behind round m of a layer is h + P(F_m), with h what the block reads and P the layer's output projection; in
front of round 0 it is h. The final norm and the vocabulary projection turn it into a prediction.
Reference: nostalgebraist, "interpreting GPT: the logit lens", 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.explore.foreign_lens import ForeignLens
from boosted_attention.model.blocks import Block
from boosted_attention.model.language_model import LanguageModel


class Lens:
    """The streams of one forward pass, read as predictions.

    Args:
        model: a model with a stream; ``lens_of`` says which have one.
    """

    def __init__(self, model: LanguageModel):
        self.model = model
        self.before: dict[int, Tensor] = {}  # what each block read, (B, T, D)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep what each block reads in forward passes inside the block."""
        hooks = [block.register_forward_pre_hook(self._keeper(i)) for i, block in enumerate(self.model.layers)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _keeper(self, i: int) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def keep(block: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self.before[i] = inputs[0]

        return keep

    def reads(self, logits: Tensor) -> bool:
        """Say whether streams can be read as predictions: always, since ``lens_of`` has asked the model."""
        return True

    @torch.no_grad()
    def stream(self, layer: int, estimate: Tensor | None) -> Tensor:
        """Return the stream (B, T, D) of a layer behind an estimate (B, T, D'), or before all of them with None."""
        block, h = self.model.layers[layer], self.before[layer]
        assert isinstance(block, Block)
        assert isinstance(block.attention, AttentionLayer)
        if estimate is None:
            return h
        out = block.attention.out_proj
        summed = h + (estimate if out is None else out(estimate))
        return summed if block.pre else block.attention_norm(summed)

    @torch.no_grad()
    def predicts(self, stream: Tensor) -> Tensor:
        """Return log-probabilities (..., V) of the next token, read from a stream (..., D)."""
        return functional.linear(self.model.norm(stream), self.model.projection).float().log_softmax(dim=-1).cpu()


AnyLens = Lens | ForeignLens


@runtime_checkable
class HasHead(Protocol):
    """A model of transformers, known without importing that."""

    def get_output_embeddings(self) -> nn.Module | None: ...


def lens_of(model: nn.Module) -> AnyLens | None:
    """Return a lens for a model; None where no stream carries what a round adds unchanged.

    Fed layers read no stream, and tokens that halt take a mean of estimates. Models of transformers add to their
    streams in ways of their own: whether one can be read is known after a pass (``reads``).
    """
    if isinstance(model, LanguageModel):
        return own_lens(model)
    foreign = getattr(model, "model", None)
    head = foreign.get_output_embeddings() if isinstance(foreign, HasHead) else None
    return None if head is None else ForeignLens(model, head)


def own_lens(model: LanguageModel) -> Lens | None:
    """Return a lens for a model of ours."""
    if model.feed is not None or model.config.halting != "none":
        return None
    layers = [block.attention for block in model.layers if isinstance(block, Block)]
    plain = all(isinstance(layer, AttentionLayer) and layer.halting is None for layer in layers)
    return Lens(model) if plain and len(layers) == len(model.layers) else None
