"""Figures of the synthetic half, drawn from tables and results; needs the ``report`` extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boosted_attention.lab.experiments import budget, rounds, scaling, temperature
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.reproduce import Reproduction
from boosted_attention.statistics import Estimate


def draw_all(found: Reproduction, preset: Preset, folder: Path) -> list[Path]:
    """Every figure whose experiment is complete, as PNG and SVG; the same bytes for the same results."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "boosted-attention", "figure.constrained_layout.use": True, "font.size": 10})
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3})
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in DRAWINGS.items():
        if name in found.tables:
            figure = draw(plt, found, preset)
            for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
                path = folder / f"{name}.{suffix}"
                figure.savefig(path, dpi=150, metadata=metadata)
                written.append(path)
            plt.close(figure)
    return written


def bars(estimates: list[Estimate]) -> tuple[list[float], list[list[float]]]:
    """Means, and the error bars down and up."""
    means = [e.mean for e in estimates]
    return means, [[e.mean - e.low for e in estimates], [e.high - e.mean for e in estimates]]


def draw_rounds(plt: Any, found: Reproduction, preset: Preset) -> Any:
    table = found.tables["rounds"]
    figure, axis = plt.subplots(figsize=(6, 3.8))
    means, spread = bars([table.quantities[f"accuracy | M={m}"] for m in rounds.ROUNDS])
    axis.errorbar(rounds.ROUNDS, means, yerr=spread, marker="o", capsize=3, label="ours, 95 % interval")
    axis.plot(rounds.ROUNDS, rounds.PAPER, "x--", color="C1", label="paper, one run")
    axis.axhline(table.quantities["accuracy | Bayes"].mean, color="0.4", ls=":", label="Bayes predictor")
    axis.set(
        xlabel="rounds M", ylabel="accuracy (%)", title=f"Retrieval after {preset.steps} steps", xticks=rounds.ROUNDS
    )
    axis.legend()
    return figure


def draw_budget(plt: Any, found: Reproduction, preset: Preset) -> Any:
    table = found.tables["budget"]
    figure, axis = plt.subplots(figsize=(7.5, 3.8))
    for i, (row, runs) in enumerate(budget.arms(preset).items()):
        done = budget.ROUNDS[: len(runs)]
        means, spread = bars([table.quantities[f"{row} | M={m}"] for m in done])
        axis.errorbar([m + 0.05 * (i - 2) for m in done], means, yerr=spread, marker="o", capsize=3, label=row)
    axis.axhline(table.quantities["Bayes | M=1"].mean, color="0.4", ls=":", label="Bayes predictor")
    axis.set(xlabel="rounds M", ylabel="accuracy (%)", xticks=budget.ROUNDS)
    axis.set_title("Rounds against training budget")
    axis.legend(fontsize=8)
    return figure


def draw_scaling(plt: Any, found: Reproduction, preset: Preset) -> Any:
    table = found.tables["scaling"]
    figure, axis = plt.subplots(figsize=(7, 3.8))
    for i, (d, k) in enumerate(scaling.SIZES):
        means, spread = bars([table.quantities[f"gain ({d}, {k}) sigma={sigma}"] for sigma in scaling.SIGMAS])
        where = [j + 0.25 * (i - 1) for j in range(len(scaling.SIGMAS))]
        axis.bar(where, means, 0.23, yerr=spread, capsize=2, label=f"d={d}, K={k}")
    axis.axhline(0, color="0.2", lw=0.8)
    axis.set_xticks(range(len(scaling.SIGMAS)), [f"{sigma}" for sigma in scaling.SIGMAS])
    axis.set(
        xlabel="noise sigma",
        ylabel="gain in accuracy (points)",
        title=f"What a second round adds after {preset.steps} steps",
    )
    axis.legend()
    return figure


def draw_temperature(plt: Any, found: Reproduction, preset: Preset) -> Any:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    result = found.outcome.result(temperature.map_run(preset, (64, 16, 0.5)))
    for axis, init in zip(axes, ("identity", "default"), strict=True):
        for j, steps in enumerate(temperature.STEPS):
            after = [row[j] for row in result[init]]
            means = [sum(seeds.values()) / len(seeds) if isinstance(seeds, dict) else seeds for seeds in after]
            axis.plot(
                temperature.BETAS,
                means,
                marker="o",
                label=f"{steps} step{'s' * (steps > 1)}",
            )
        axis.axhline(result["bayes"], color="0.4", ls=":", label="Bayes predictor")
        axis.axhline(100 / 16, color="0.4", ls="--", lw=0.8, label="chance")
        axis.set(xlabel="inverse temperature", title=f"{init} projections", xscale="log")
        axis.set_xticks(temperature.BETAS, [f"{beta:g}" for beta in temperature.BETAS])
        axis.minorticks_off()
    axes[0].axvline(result["critical_beta"], color="C3", lw=1)
    axes[0].annotate("every pattern\nkeeps a fixed point", (result["critical_beta"], 20), xytext=(8, 0),
                     textcoords="offset points", fontsize=8, color="C3")  # fmt: skip
    axes[0].set_ylabel("accuracy (%)")
    axes[1].legend(fontsize=8)
    figure.suptitle("Iterated retrieval without training, d=64, K=16, sigma=0.5")
    return figure


DRAWINGS = {"rounds": draw_rounds, "budget": draw_budget, "scaling": draw_scaling, "temperature": draw_temperature}
