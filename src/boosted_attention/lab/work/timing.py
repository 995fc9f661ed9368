"""Step times of models beside each other; everything in these results depends on the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from boosted_attention.lab.trials.trial import Context, work
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.protocols import ModelConfig
from boosted_attention.progress import Progress
from boosted_attention.records import to_json
from boosted_attention.timing import interleaved, median_ratios
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.optim import TrainingOptimizer


@dataclass(frozen=True, kw_only=True)
class StepRatios:
    """Median time of a training step of each model, as a multiple of the first one's."""

    measured: dict[str, float]


@work("language.time")
def time_models(
    context: Context, *, models: list[tuple[str, dict[str, Any]]], batch_size: int, repeats: int
) -> dict[str, Any]:
    """Time a training step of every model, as a multiple of the first one's."""
    built = {label: LanguageModelConfig.from_dict(model) for label, model in models}
    return to_json(StepRatios(measured=median_ratios(step_seconds(built, batch_size, repeats, context.progress))))


def step_seconds(
    models: Mapping[str, ModelConfig], batch_size: int, repeats: int, progress: Progress = lambda fraction: None
) -> dict[str, list[float]]:
    """Seconds of interleaved training steps.

    Args:
        models: configurations by name.
        batch_size: rows of a step.
        repeats: steps of each model.
        progress: told the fraction that is done.
    """
    steps = {name: training_step(config, batch_size) for name, config in models.items()}
    return interleaved(steps, repeats, progress)


def training_step(config: ModelConfig, batch_size: int) -> Callable[[], None]:
    """A function that makes one update of a fresh model on random tokens."""
    torch.manual_seed(0)
    model = config.build()
    optimizer = TrainingOptimizer(TrainingConfig(), model)
    ids = torch.randint(config.vocab_size, (batch_size, config.max_len))  # (B, T)

    def step() -> None:
        model.loss(ids, ids).backward()
        optimizer.step()

    return step
