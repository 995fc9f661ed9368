"""Step times of models beside each other; everything in these results depends on the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from boosted_attention.lab.trials.trial import Context, work
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.protocols import ModelConfig
from boosted_attention.progress import Progress
from boosted_attention.records import to_json
from boosted_attention.timing import interleaved, median_ratios, quartile_ratios
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.optim import TrainingOptimizer


@dataclass(frozen=True, kw_only=True)
class StepRatios:
    """Median time of a training step of each model, as a multiple of the first one's, with its quartiles."""

    measured: dict[str, float]
    measured_quartiles: dict[str, tuple[float, float]] | None = None  # None in results from before they were kept

    @classmethod
    def of(cls, seconds: Mapping[str, Sequence[float]]) -> StepRatios:
        """The ratios of interleaved steps, given their seconds by model."""
        return cls(measured=median_ratios(seconds), measured_quartiles=quartile_ratios(seconds))


def with_quartiles(measured: Mapping[str, float], quartiles: Mapping[str, tuple[float, float]]) -> str:
    """Medians of ratios with their quartiles, by name, as text."""
    return "; ".join(f"{name} {measured[name]:.3f} [{low:.3f}, {high:.3f}]" for name, (low, high) in quartiles.items())


@work("language.time", schema=2, alone=True)  # 2: with the optimizer of the training
def time_models(
    context: Context, *, models: list[tuple[str, dict[str, Any]]], training: dict[str, Any], repeats: int
) -> dict[str, Any]:
    """Time a training step of every model, as a multiple of the first one's."""
    built = {label: LanguageModelConfig.from_dict(model) for label, model in models}
    seconds = step_seconds(built, TrainingConfig(**training), repeats, context.progress)
    return to_json(StepRatios.of(seconds))


def step_seconds(
    models: Mapping[str, ModelConfig],
    training: TrainingConfig,
    repeats: int,
    progress: Progress = lambda fraction: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of interleaved training steps.

    Args:
        models: configurations by name.
        training: rows of a step, and the optimizer.
        repeats: steps of each model.
        progress: told the fraction that is done.
        clock: returns seconds.
    """
    steps = {name: training_step(config, training) for name, config in models.items()}
    return interleaved(steps, repeats, progress, clock=clock)


def training_step(config: ModelConfig, training: TrainingConfig) -> Callable[[], None]:
    """A function that makes one update of a fresh model on random tokens."""
    torch.manual_seed(0)
    model = config.build()
    optimizer = TrainingOptimizer(training, model)
    ids = torch.randint(config.vocab_size, (training.batch_size, config.max_len))  # (B, T)

    def step() -> None:
        model.loss(ids, ids).backward()
        optimizer.step()

    return step
