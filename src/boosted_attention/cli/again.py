"""The command line that computes an experiment again, as pages show it."""

from __future__ import annotations

import shlex

from boosted_attention.lab.presets import PRESETS, Preset


def command_line(name: str, preset: Preset) -> str:
    """The command that computes an experiment's table; flags name only what differs from the preset."""
    words = ["boosted-attention", "reproduce", name, "--preset", preset.name]
    usual = PRESETS.get(preset.name, preset)
    if preset.seeds != usual.seeds:
        words += ["--seeds", str(preset.seeds)]
    if preset.text.corpora != usual.text.corpora:
        words += ["--corpus", *preset.text.corpora]
    return shlex.join(words)
