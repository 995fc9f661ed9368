"""How much memory a model needs, counted on tensors that have shapes but no storage.

Activations are what autograd really keeps for the backward pass of one training step, found by running that step on
fake tensors; nothing is modelled that could go out of date.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from boosted_attention.attention.cache import KVCache

if TYPE_CHECKING:
    from boosted_attention.model.config import LanguageModelConfig


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes in float32: training holds weights, gradients, optimizer and activations; decoding weights and cache."""

    weights: int
    gradients: int
    optimizer: int  # AdamW: two numbers per weight
    activations: int  # kept for the backward pass, beyond the weights
    cache: int  # keys and values of every round, for this batch and length

    @property
    def training(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations

    @property
    def decoding(self) -> int:
        return self.weights + self.cache


def estimate_memory(config: LanguageModelConfig, batch_size: int, length: int) -> Memory:
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = config.build()
        weights = sum(size(p) for p in model.parameters())
        own = {p.untyped_storage()._cdata for p in model.parameters()}
        ids = torch.zeros(batch_size, length, dtype=torch.long)
        kept: dict[int, Tensor] = {}  # by storage: what is saved twice is held once

        def keep(t: Tensor) -> Tensor:
            if t.untyped_storage()._cdata not in own:
                kept[t.untyped_storage()._cdata] = t
            return t

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            loss = model.loss(ids, ids)
        activations = sum(t.untyped_storage().nbytes() for t in kept.values())
        del loss
        cache = KVCache()
        with torch.no_grad():
            model.eval().hidden(ids, cache=cache)
        slots = sum(size(t) for i in range(config.n_layers) for t in cache.layer(i).slots.values())
    return Memory(weights=weights, gradients=weights, optimizer=2 * weights, activations=activations, cache=slots)


def size(t: Tensor) -> int:
    return t.numel() * t.element_size()
