"""The experiments, one file each.

A file whose name does not begin with an underscore holds one ``EXPERIMENT`` and is found by being here.
"""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment
from boosted_attention.lab.judging.place import Kind
from boosted_attention.registration import import_folder
from boosted_attention.validation import require_choice


def found() -> dict[str, Experiment]:
    """Every experiment below this folder, in the order they are listed."""
    experiments = [module.EXPERIMENT for module in import_folder(__name__)]
    named = {e.name: e for e in sorted(experiments, key=lambda e: e.order)}
    assert len(named) == len(experiments), "two experiments have the same name"
    ids = [claim.id for e in experiments for claim in e.claims]
    assert len(set(ids)) == len(ids), "two claims have the same id"
    return named


EXPERIMENTS = found()
LANGUAGE = tuple(name for name, e in EXPERIMENTS.items() if e.kind is Kind.LANGUAGE)
TEXTUAL = tuple(name for name, e in EXPERIMENTS.items() if e.kind in (Kind.LANGUAGE, Kind.FINETUNE))  # train on texts
DEFAULT = tuple(name for name, e in EXPERIMENTS.items() if e.by_default)  # what reproduce does unasked


def experiment(name: str) -> Experiment:
    """An experiment by name."""
    require_choice("experiments", name, EXPERIMENTS)
    return EXPERIMENTS[name]
