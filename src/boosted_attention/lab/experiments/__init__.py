"""The experiments, one module each."""

from __future__ import annotations

import importlib
from typing import cast

from boosted_attention.lab.experiment import Experiment
from boosted_attention.validation import require_choice

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
    "lm-kv-source": "lm_kv_source",
    "lm-convergence": "lm_convergence",
    "lm-rounds": "lm_rounds",
    "lm-controls": "lm_controls",
    "lm-scale": "lm_scale",
    "lm-selective": "lm_selective",
    "lm-pareto": "lm_pareto",
    "analysis": "analysis",
    "finetune": "finetune",
}

# those that train language models
TEXT = tuple(name for name in EXPERIMENTS if name.startswith("lm-") or name == "analysis")
# what reproduce does unasked
DEFAULT = tuple(
    name for name in EXPERIMENTS if (name not in TEXT or name in ("lm-main", "analysis")) and name != "finetune"
)


def experiment(name: str) -> Experiment:
    require_choice("experiment", name, EXPERIMENTS)
    module = importlib.import_module(f"boosted_attention.lab.experiments.{EXPERIMENTS[name]}")
    return cast(Experiment, module)
