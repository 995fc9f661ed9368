"""What results decide, by rules in code: for language models and for fine-tuning."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments import _finetunings as finetuning
from boosted_attention.lab.experiments.language import _decisions as language
from boosted_attention.lab.presets import Preset


def settled(preset: Preset, results: Results) -> Preset:
    """The preset with everything that the results decide; what they do not decide yet stays open.

    Args:
        preset: what it says of decisions is not looked at.
        results: results of trials; KeyError for those that are not there.
    """
    return finetuning.settled(language.settled(preset, results), results)
