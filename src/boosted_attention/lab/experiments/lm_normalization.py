"""Table 4: the main arms under Pre-LN and Post-LN."""

from __future__ import annotations

from boosted_attention.lab.experiments.text_arms import main_arms
from boosted_attention.lab.language import text_runs
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run

TITLE = "Placement of the norms: test perplexity (Table 4)"


def runs(preset: Preset) -> list[Run]:
    arms = {name: arm for name, arm in main_arms(preset).items() if name != "twicing"}
    post = {f"{name}, post": {**arm, "norm": "post"} for name, arm in arms.items()}
    return text_runs(preset, {**arms, **post})
