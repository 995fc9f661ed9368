"""What a sequence task is, and its batches: pure functions of a seed and a step."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from boosted_attention.attention.dropout import seed_from


class SequenceTask(Protocol):
    """A task whose sequences can be drawn at any length."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        ...

    @property
    def length(self) -> int:
        """Length of the sequences of a training."""
        ...

    def draw(self, n: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw token ids (n, length), and what is to be said at each position (n, length), -100 for nothing.

        Args:
            n: number of sequences.
            length: tokens of each.
            generator: source of randomness.
        """
        ...


def batch(task: SequenceTask, n: int, length: int, *, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Draw the batch of a step: ids and targets, both (n, length).

    Args:
        task: what is drawn.
        n: number of sequences.
        length: tokens of each.
        seed: seed of the training.
        step: number of the step.
    """
    return task.draw(n, length, torch.Generator().manual_seed(seed_from(seed, step)))
