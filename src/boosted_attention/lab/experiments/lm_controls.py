"""Is it the residual, or more attention, more parameters, more compute?"""

from __future__ import annotations

from boosted_attention.lab.experiments.text_arms import BOOSTED, STANDARD, main_arms, matched_arm
from boosted_attention.lab.language import recipe, text_runs
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run

TITLE = "Controls: test perplexity"


def arms(preset: Preset):
    return {
        **main_arms(preset),
        "parallel": {"attention": "parallel"},
        "FLOP-matched width": matched_arm(preset, BOOSTED, "flops"),
        "one more layer": {**STANDARD, "n_layers": recipe(preset).model.n_layers + 1},
    }


def runs(preset: Preset) -> list[Run]:
    return text_runs(preset, arms(preset))
