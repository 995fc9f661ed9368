"""The arms of the language-model experiments: what each changes in the preset's model."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from boosted_attention.lab.language import Arm, arm_model
from boosted_attention.lab.matching import matched
from boosted_attention.lab.presets import Preset

STANDARD: Arm = {"attention": "standard"}
TWICING: Arm = {"attention": "twicing"}
BOOSTED: Arm = {"attention": "boosted"}


def matched_arm(preset: Preset, arm: Arm, by: str) -> dict[str, Any]:
    """The standard model that costs what ``arm`` costs."""
    return dict(_matched(preset.name, tuple(sorted(arm.items())), by))


@lru_cache(maxsize=64)
def _matched(preset_name: str, arm: tuple[tuple[str, Any], ...], by: str) -> tuple[tuple[str, Any], ...]:
    from boosted_attention.lab.presets import PRESETS

    model = matched(arm_model(PRESETS[preset_name], dict(arm)), by)
    found = {"attention": "standard", "d_model": model.d_model}
    if model.ffn_multiple != 4.0:
        found["ffn_multiple"] = model.ffn_multiple
    return tuple(found.items())


def main_arms(preset: Preset) -> dict[str, Arm]:
    """Table 3."""
    return {
        "standard": STANDARD,
        "twicing": TWICING,
        "param-fair": matched_arm(preset, BOOSTED, "parameters"),
        "boosted": BOOSTED,
    }
