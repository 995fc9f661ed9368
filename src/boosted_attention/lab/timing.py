"""How long a training step takes beside another's: interleaved, so that only the ratio counts on a shared machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.optim import TrainingOptimizer


def step_time_ratios(
    models: Mapping[str, Any],  # configurations
    batch_size: int,
    repeats: int,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[str, float]:
    """Median time of a training step of each model as a multiple of the first one's."""
    return ratios_to_first(step_seconds(models, batch_size, repeats, progress))


def step_seconds(
    models: Mapping[str, Any], batch_size: int, repeats: int, progress: Callable[[float], None] = lambda fraction: None
) -> dict[str, list[float]]:
    """Times of training steps, one of each model in turn."""
    steps = {name: training_step(config, batch_size) for name, config in models.items()}
    for step in steps.values():
        step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(repeats):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - started)
        progress((i + 1) / repeats)
    return seconds


def ratios_to_first(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Medians of the ratios within a turn: what slows the machine down slows down a whole turn."""
    first = next(iter(seconds.values()))
    return {
        name: statistics.median(own / beside for own, beside in zip(values, first, strict=True))
        for name, values in seconds.items()
    }


def training_step(config: Any, batch_size: int) -> Callable[[], None]:
    torch.manual_seed(0)
    model = config.build()
    optimizer = TrainingOptimizer(
        TrainingConfig(), {name: p for name, p in model.named_parameters() if p.requires_grad}
    )
    ids = torch.randint(config.vocab_size, (batch_size, config.max_len))

    def step() -> None:
        model.loss(ids, ids).backward()
        optimizer.step()

    return step
