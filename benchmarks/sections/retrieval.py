"""What training all seeds of the retrieval task together saves, and what a second worker adds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks.bench import Bench
from benchmarks.race import Race
from benchmarks.section import Section, Shown, ratio, seconds, table
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining, train

TASK, MODEL, STEPS = RetrievalTask(), RetrievalModel(n_rounds=2), 10
APART, TOGETHER, WORKERS = "one after the other", "together", "together, two workers"
TURNS = 3


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Wall-clock times of training so many seeds."""

    seeds: int
    steps: int
    ways: Race


def train_seeds(seeds: Sequence[int], together: bool = True) -> None:
    """Train models of some seeds, with one thread."""
    torch.set_num_threads(1)
    train(lambda _: MODEL.build(TASK.d), TASK, RetrievalTraining(steps=STEPS), seeds, together=together)


def measure(bench: Bench) -> Retrieval:
    """Time the three ways in turns."""
    seeds = 4 if bench.quick else 64
    halves = [list(range(seeds // 2)), list(range(seeds // 2, seeds))]
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        pool.map(train_seeds, [[0, 1], [2, 3]])  # starts and warms up the workers
        race = bench.race(
            f"{seeds} seeds",
            {
                APART: lambda: train_seeds(range(seeds), together=False),
                TOGETHER: lambda: train_seeds(range(seeds)),
                WORKERS: lambda: pool.map(train_seeds, halves),
            },
            TURNS,
            until=1.0,
            clock="wall",
        )
    return Retrieval(seeds=seeds, steps=STEPS, ways=race)


def show(retrieval: Retrieval) -> Shown:
    """Make the table."""
    race = retrieval.ways
    rows = [[name, seconds(race.median(name)), ratio(race.ratio(APART, name))] for name in race.seconds]
    text = f"{retrieval.seeds} seeds, {retrieval.steps} steps each, d={TASK.d}, two rounds; one thread per process.\n\n"
    return Shown(text=text + table(["", "time", "faster"], rows))


RETRIEVAL = Section(
    name="retrieval", title="Retrieval, all seeds together", minutes=0.8, result=Retrieval, measure=measure, show=show
)
