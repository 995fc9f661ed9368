"""Command lines as text: how a planned model is trained, and how a table is computed again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boosted_attention.cli.program import PROGRAM

if TYPE_CHECKING:
    from boosted_attention.lab.presets import Preset
    from boosted_attention.planning.cluster import PlannedModel
    from boosted_attention.train.run_config import RunConfig


def train_command(planned: PlannedModel) -> str:
    """The command that trains a planned model on its cluster; "" if it does not fit."""
    from boosted_attention.train.recipes import RECIPES

    layout = planned.layout()
    if layout is None:
        return ""
    kind, recomputed, accumulate = layout
    base = RECIPES.get(planned.source, RECIPES["mini"])
    words = ["--recipe", planned.source] if planned.source in RECIPES else []
    for ours, theirs in zip(parts_of(planned.recipe), parts_of(base), strict=True):
        for option, value in ours.items():
            if value != theirs[option] and option not in ("steps", "epochs", "accumulate", "attention_options"):
                words += given(option.replace("_", "-"), value)
    layer = planned.model.attention_options
    if layer != base.model.attention_options:
        words += ["--attention-options", *(f"{k}={json.dumps(v, separators=(',', ':'))}" for k, v in layer.items())]
    words += ["--steps", str(planned.steps), "--accumulate", str(accumulate), "--device", "cuda"]
    n, per_node = planned.cluster.devices, planned.cluster.per_node
    words += (["--parallel", kind] if n > 1 else []) + (["--checkpoint-activations"] if recomputed else [])
    return f"{launcher(n, per_node)} train {shlex.join(words)}"


def launcher(devices: int, per_node: int) -> str:
    """How processes are started: one alone, or torchrun on one or several machines."""
    if devices == 1:
        return PROGRAM
    nodes, here = max(1, devices // per_node), min(devices, per_node)
    meet = f"--nnodes {nodes} --rdzv-backend c10d --rdzv-endpoint FIRST_NODE:29500 " if nodes > 1 else ""
    return f"torchrun {meet}--nproc-per-node {here} -m boosted_attention"


def given(option: str, value: Any) -> list[str]:
    """An option with its value, as the command line takes it."""
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]


def parts_of(recipe: RunConfig) -> tuple[dict[str, Any], ...]:
    return vars(recipe.model), vars(recipe.training), vars(recipe.data)


def reproduce_command(name: str, preset: Preset) -> str:
    """The command that computes an experiment's table."""
    from boosted_attention.lab.presets import PRESETS

    words = [PROGRAM, "reproduce", name, "--preset", preset.name]
    usual = PRESETS.get(preset.name, preset)
    if preset.seeds != usual.seeds:
        words += ["--seeds", str(preset.seeds)]
    if preset.text.corpora != usual.text.corpora:
        words += ["--corpus", *preset.text.corpora]
    return shlex.join(words)


def claims_command(out: Path) -> str:
    """The command that shows every claim of a folder of results."""
    return shlex.join([PROGRAM, "claims", *([] if str(out) == "out" else ["--out", str(out)])])
