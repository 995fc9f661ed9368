"""Table 3: standard, twicing, the wider standard model and boosted, on text."""

from __future__ import annotations

from boosted_attention.lab.experiments.text_arms import main_arms
from boosted_attention.lab.language import text_runs
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run

TITLE = "Language models: test perplexity (Table 3)"


def runs(preset: Preset) -> list[Run]:
    return text_runs(preset, main_arms(preset))
