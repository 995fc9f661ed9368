"""Our models at the size of the benchmarks, and one training step as the trainer makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.plain import Step
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.gradients import accumulate_gradients
from boosted_attention.train.optim import TrainingOptimizer
from boosted_attention.train.parallel import ALONE


@dataclass(frozen=True, kw_only=True)
class Size:
    """What all models of a section share."""

    d_model: int = 256
    n_layers: int = 4
    n_heads: int = 4
    vocab_size: int = 16_384

    def config(self, attention: str, length: int, dropout: float, **options: Any) -> LanguageModelConfig:
        """Return our model of this size.

        Args:
            attention: catalog name.
            length: longest sequence.
            dropout: probability of dropout.
            options: options of the layer, such as n_rounds=3.
        """
        return LanguageModelConfig(
            **vars(self), attention=attention, attention_options=options, max_len=length, dropout=dropout
        )

    def __str__(self) -> str:
        return f"d={self.d_model}, {self.n_layers} layers, {self.n_heads} heads, {self.vocab_size:,} types"


PAPER = Size()  # the paper's small model
TINY = Size(d_model=32, n_layers=1, n_heads=4, vocab_size=512)  # to try the benchmarks themselves


def random_batch(vocab_size: int, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Draw ids and targets, each (rows, length), the same for every model."""
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocab_size, (rows, length + 1), generator=draw)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def our_step(config: LanguageModelConfig, *, compiled: bool = False) -> Step:
    """Return a training step of our model: what the trainer does to ids and targets between two rows of its log.

    Args:
        config: the model.
        compiled: whether the model is compiled with torch.compile.
    """
    torch.manual_seed(0)
    training = TrainingConfig(compile=compiled)
    model = config.build()
    model.train()
    loss = ALONE.distribute(model, torch.device("cpu"), checkpointing=False, compiled=compiled)
    optimizer = TrainingOptimizer(training, model)

    def step(ids: Tensor, targets: Tensor) -> None:
        optimizer.set_rates(training.steps // 2, training.steps)
        accumulate_gradients(loss, ids, targets, targets.numel(), training.accumulate, training.precision)
        torch.nn.utils.clip_grad_norm_(optimizer.parameters.values(), training.clip)
        optimizer.step()

    return step
