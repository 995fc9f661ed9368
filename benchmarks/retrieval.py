"""What training all seeds of the retrieval task together saves, and what a second worker adds.

make bench
"""

import multiprocessing
from collections.abc import Sequence

import torch

from benchmarks.interleaved import compare
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining, train

SEEDS, STEPS = 64, 10
TASK, MODEL = RetrievalTask(), RetrievalModel(n_rounds=2)


def train_seeds(seeds: Sequence[int], together: bool = True) -> None:
    torch.set_num_threads(1)
    train(lambda _: MODEL.build(TASK.d), TASK, RetrievalTraining(steps=STEPS), seeds, together=together)


def main() -> None:
    torch.set_num_threads(1)
    halves = [list(range(SEEDS // 2)), list(range(SEEDS // 2, SEEDS))]
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        pool.map(train_seeds, [[0, 1], [2, 3]])  # start and warm up the workers
        compare(
            f"{SEEDS} seeds, {STEPS} steps each, d={TASK.d}, two rounds, one thread a process",
            {
                "one after the other": lambda: train_seeds(range(SEEDS), together=False),
                "together": lambda: train_seeds(range(SEEDS)),
                "together, two workers": lambda: pool.map(train_seeds, halves),
            },
            repeats=5,
        )


if __name__ == "__main__":
    main()
