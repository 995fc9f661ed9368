"""Appendix C: the gain of a second round over sizes and noise; the paper leaves out sigma = 1.2."""

from __future__ import annotations

import itertools

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import baseline_run, boosted, by_seed, task, training_run
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, exact, render, trained

__all__ = ["TITLE", "collect", "render", "runs"]

TITLE = "Gain of M=2 over M=1 by size and noise: accuracy (%) (Appendix C)"
SIZES = ((32, 8), (64, 16), (128, 32))
SIGMAS = (0.3, 0.5, 0.8, 1.2)
PAPER_GAIN = {((64, 16), 0.3): 17.8, ((32, 8), 0.3): 14.6, ((128, 32), 0.3): 13.5}


def runs(preset: Preset) -> list[Run]:
    chosen = []
    for size in SIZES:
        for sigma in SIGMAS:
            where = task(*size, sigma)
            chosen += [baseline_run(preset, where), *(training_run(preset, where, boosted(m)) for m in (1, 2))]
    return chosen


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [f"sigma={sigma}" for sigma in SIGMAS])
    bayes_at: dict[tuple[tuple[int, int], float], float] = {}
    accuracy: dict[tuple[tuple[int, int], float, int], dict[int, float]] = {}
    for size in SIZES:
        d, k = size
        bayes = [results(baseline_run(preset, task(d, k, sigma)))["bayes"]["accuracy"] for sigma in SIGMAS]
        bayes_at |= {(size, sigma): value for sigma, value in zip(SIGMAS, bayes, strict=True)}
        table.add_row(f"({d}, {k}) Bayes", [exact(value) for value in bayes])
        for m in (1, 2):
            for sigma in SIGMAS:
                accuracy[size, sigma, m] = by_seed(
                    results(training_run(preset, task(d, k, sigma), boosted(m))), "accuracy"
                )
            table.add_row(f"({d}, {k}) M={m}", [trained(accuracy[size, sigma, m]) for sigma in SIGMAS])
    gain = {
        (size, sigma): {
            seed: accuracy[size, sigma, 2][seed] - value for seed, value in accuracy[size, sigma, 1].items()
        }
        for size in SIZES
        for sigma in SIGMAS
    }
    pairs = [
        (
            f"gain ({d}, {k}) sigma={sigma}",
            accuracy[(d, k), sigma, 2],
            accuracy[(d, k), sigma, 1],
            PAPER_GAIN.get(((d, k), sigma)),
        )
        for d, k in SIZES
        for sigma in SIGMAS
    ]
    for d, k in SIZES:
        for low, high in itertools.pairwise(SIGMAS):
            label = f"gain at sigma={high} - at {low}, ({d}, {k})"
            pairs.append((label, gain[(d, k), high], gain[(d, k), low], None))
    for d, k in SIZES:
        half = {seed: (value + bayes_at[(d, k), 0.5]) / 2 for seed, value in accuracy[(d, k), 0.5, 1].items()}
        pairs.append((f"M=2 - halfway to Bayes, ({d}, {k}) sigma=0.5", accuracy[(d, k), 0.5, 2], half, None))
    pairs.append(("gain (128, 32) - gain (32, 8), sigma=0.3", gain[(128, 32), 0.3], gain[(32, 8), 0.3], -1.1))
    table.compare(pairs)
    return table
