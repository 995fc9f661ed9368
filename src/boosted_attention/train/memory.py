"""Memory of training and decoding, counted on tensors that have shapes but no storage.

Activations are what autograd really keeps for the backward pass of one training step, found by running that step on
fake tensors; there is no formula beside the model that could go out of date.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor, nn

from boosted_attention.attention.cache import KVCache
from boosted_attention.compat import fake_mode, storage_key
from boosted_attention.documentation import documented
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.language_model import LanguageModel
from boosted_attention.model.loss import bytes_of_chunk
from boosted_attention.train.optim import state_bytes
from boosted_attention.train.optimizers import DEFAULT_OPTIMIZER


@documented
@dataclass(frozen=True, kw_only=True)
class TrainingMemory:
    """Bytes: training holds weights, gradients, optimizer and activations; decoding holds weights and cache."""

    weights: int  # Bytes of the weights.
    gradients: int  # Bytes of the gradients.
    optimizer: int  # Bytes of the optimizer's state.
    activations: int  # Bytes kept for the backward pass, beyond the weights.
    between_blocks: int
    """Bytes of activations outside of blocks and of each block's input, kept where blocks are recomputed."""
    largest_block: int  # Bytes of the activations inside the largest block, held while it is recomputed.
    logits: int  # Bytes of one chunk of logits in the loss and of their gradients, held at the end of the forward pass.
    cache_of_rounds: tuple[int, ...]  # Bytes of each round's keys and values in decoding, for this batch and length.

    @property
    def cache(self) -> int:
        return sum(self.cache_of_rounds)

    @property
    def training(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits

    @property
    def decoding(self) -> int:
        return self.weights + self.cache


def estimate_memory(
    config: LanguageModelConfig,
    batch_size: int = 1,
    length: int | None = None,
    *,
    precision: torch.dtype = torch.float32,
    optimizer: str = DEFAULT_OPTIMIZER,
) -> TrainingMemory:
    """Count the bytes of one training step, and of decoding, without allocating them.

    Args:
        config: the model.
        batch_size: rows of the step.
        length: tokens per row; the model's max_len by default.
        precision: float32 or float64; bfloat16 means autocast, with weights and optimizer in float32.
        optimizer: name of the optimizer, as in ``TrainingConfig``.
    """
    length = length or config.max_len
    half = precision == torch.bfloat16
    with fake_mode(), torch.autocast("cpu", torch.bfloat16, enabled=half):
        model = built_in(torch.float32 if half else precision, config)
        weights = sum(size(p) for p in model.parameters())
        of_optimizer = state_bytes(model, optimizer)
        own = {storage_key(p) for p in model.parameters()}
        ids = torch.zeros(batch_size, length, dtype=torch.long)
        kept: dict[int, Tensor] = {}  # by storage: what is saved twice is held once
        inside: dict[int, int] = {}  # the application of a block in which it was saved first
        inputs: dict[int, Tensor] = {}  # by storage: the input of each application
        block: int | None = None

        def keep(t: Tensor) -> Tensor:
            place = storage_key(t)
            if place not in own:
                kept[place] = t
                if block is not None:
                    inside.setdefault(place, block)
            return t

        numbers = count()

        def enter(_: nn.Module, arguments: tuple[Tensor | tuple[Tensor, ...]]) -> None:
            nonlocal block
            block, read = next(numbers), arguments[0]
            inputs.update({storage_key(t): t for t in ((read,) if isinstance(read, Tensor) else read)})

        def leave(*_: object) -> None:
            nonlocal block
            block = None

        for layer in model.layers:
            layer.register_forward_pre_hook(enter)
            layer.register_forward_hook(leave)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            loss = model.loss(ids, ids)
        sizes = {place: t.untyped_storage().nbytes() for place, t in kept.items()}
        of_blocks = [sum(sizes[place] for place, i in inside.items() if i == b) for b in range(next(numbers))]
        of_inputs = sum(size(t) for t in inputs.values())
        del loss
        cache = KVCache()
        with torch.no_grad():
            model.eval().hidden(ids, cache=cache)
        slots: dict[int, int] = {}
        for (_, m), t in (slot for i in range(config.applications) for slot in cache.layer(i).slots.items()):
            slots[m] = slots.get(m, 0) + size(t)
    everything = sum(sizes.values())
    return TrainingMemory(
        weights=weights,
        gradients=weights,
        optimizer=of_optimizer,
        activations=everything,
        between_blocks=everything - sum(of_blocks) + of_inputs,
        largest_block=max(of_blocks),
        logits=bytes_of_chunk(batch_size * length, config.vocab_size, precision),
        cache_of_rounds=tuple(slots[m] for m in sorted(slots)),
    )


def built_in(dtype: torch.dtype, config: LanguageModelConfig) -> LanguageModel:
    """Build a model in this dtype from the start: tensors without storage cannot be exchanged for others."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return config.build()
    finally:
        torch.set_default_dtype(before)


def size(t: Tensor) -> int:
    return t.numel() * t.element_size()
