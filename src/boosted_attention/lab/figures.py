"""Figures of the experiments, collected from the files they stand in."""

from __future__ import annotations

from boosted_attention.chart import Figure
from boosted_attention.lab.experiments import EXPERIMENTS
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.reproduce import Reproduction


def all_figures(found: Reproduction, preset: Preset) -> list[Figure]:
    """Every figure whose experiment is complete."""
    return [
        e.figure(preset, found.tables[name], found.outcome.result)
        for name, e in EXPERIMENTS.items()
        if e.figure is not None and name in found.tables
    ]
