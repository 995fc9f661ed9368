"""What torch allocates for a step; under torchrun: recipe, optimizer, kind, rows and 0 or 1 for checkpointing."""

import sys

import torch
from torch.profiler import ProfilerActivity, profile

from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.optim import TrainingOptimizer
from boosted_attention.train.parallel import Parallel, own_part, processes
from boosted_attention.train.recipes import RECIPES


def peak_bytes(parallel: Parallel, recipe: str, optimizer: str, rows: int, checkpointing: bool) -> int:
    """The most that a process held at once in two steps, the weights that are its own included."""
    config = RECIPES[recipe].model
    model = config.build()
    trained = parallel.distribute(model, torch.device("cpu"), checkpointing=checkpointing, compiled=False)
    updates = TrainingOptimizer(TrainingConfig(optimizer=optimizer), model)
    ids = torch.zeros(rows, config.max_len, dtype=torch.long)
    now = sum(own_part(p).nbytes for p in model.parameters())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        for _ in range(2):
            with trained.synchronised(True):
                trained.loss(ids, ids).backward()
            updates.step()
    peak = now
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


if __name__ == "__main__":
    recipe, optimizer, kind, rows, checkpointing = sys.argv[1:]
    with processes(kind, "cpu") as (parallel, _):
        found = peak_bytes(parallel, recipe, optimizer, int(rows), checkpointing == "1")
        if parallel.main:
            print(found)
