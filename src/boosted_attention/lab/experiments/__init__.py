"""The experiments, one module each."""

from __future__ import annotations

import importlib
from typing import cast

from boosted_attention.lab.experiment import Experiment
from boosted_attention.names import require_choice

# name: module, in the order they are shown
EXPERIMENTS = {
    "propositions": "propositions",
    "negative": "negative",
    "rounds": "rounds",
    "gates": "gates",
    "scaling": "scaling",
    "routing": "routing",
    "budget": "budget",
    "residual-control": "residual_control",
    "temperature": "temperature",
    "metric": "metric",
    "lm-main": "lm_main",
    "lm-normalization": "lm_normalization",
    "lm-controls": "lm_controls",
}


def experiment(name: str) -> Experiment:
    require_choice("experiment", name, EXPERIMENTS)
    module = importlib.import_module(f"boosted_attention.lab.experiments.{EXPERIMENTS[name]}")
    return cast(Experiment, module)
