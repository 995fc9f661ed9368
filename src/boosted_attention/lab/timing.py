"""How long a training step takes beside another's: interleaved, so that only the ratio counts on a shared machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch


def step_time_ratios(
    models: Mapping[str, Any],  # configurations
    batch_size: int,
    repeats: int,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[str, float]:
    """Median time of a training step of each model as a multiple of the first one's."""
    steps = {name: training_step(config, batch_size) for name, config in models.items()}
    for step in steps.values():
        step()
    first = next(iter(steps))
    ratios: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(repeats):
        seconds = {}
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            seconds[name] = time.perf_counter() - started
        for name in steps:
            ratios[name].append(seconds[name] / seconds[first])
        progress((i + 1) / repeats)
    return {name: statistics.median(values) for name, values in ratios.items()}


def training_step(config: Any, batch_size: int) -> Callable[[], None]:
    torch.manual_seed(0)
    model = config.build()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], fused=True)
    ids = torch.randint(config.vocab_size, (batch_size, config.max_len))

    def step() -> None:
        model.loss(ids, ids).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
