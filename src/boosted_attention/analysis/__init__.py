"""What the rounds of a trained model do: gates, entropy, hull distance, corrections, importance, dynamics.

    found = examine(model, rows, vocabulary, against=other)     # everything, as an ``Analysis``
    layers = most_important(importance(model, rows), 2)         # the two layers whose corrections are missed most

Any module that contains attention layers of this library can be analysed. ``records.to_json`` turns what is found into
JSON, and ``records.from_json`` reads it back.
"""

from boosted_attention.analysis.corrections import Corrections, corrections
from boosted_attention.analysis.dynamics import DynamicsAtStep, DynamicsStudy, RoundDynamics, dynamics_probe
from boosted_attention.analysis.entropy import EntropyFinding, EntropyStudy
from boosted_attention.analysis.examine import Analysis, Names, Relations, examine
from boosted_attention.analysis.explorer import Explorer, explore
from boosted_attention.analysis.gates import GateFinding, GateStudy
from boosted_attention.analysis.halting import RoundsTaken, rounds_taken
from boosted_attention.analysis.hull import HullDistances, LayerHull, hull_distance, hull_study
from boosted_attention.analysis.importance import Importance, LayerImportance, importance, most_important
from boosted_attention.analysis.interval import Interval
from boosted_attention.analysis.maps import AttentionMaps, attention_maps
from boosted_attention.analysis.specialisation import Specialisation, SpecialisationStudy
from boosted_attention.analysis.survey import Study, draw_rows, survey

__all__ = [
    "Analysis",
    "AttentionMaps",
    "Corrections",
    "DynamicsAtStep",
    "DynamicsStudy",
    "EntropyFinding",
    "EntropyStudy",
    "Explorer",
    "GateFinding",
    "GateStudy",
    "HullDistances",
    "Importance",
    "Interval",
    "LayerHull",
    "LayerImportance",
    "Names",
    "Relations",
    "RoundDynamics",
    "RoundsTaken",
    "Specialisation",
    "SpecialisationStudy",
    "Study",
    "attention_maps",
    "corrections",
    "draw_rows",
    "dynamics_probe",
    "examine",
    "explore",
    "hull_distance",
    "hull_study",
    "importance",
    "most_important",
    "rounds_taken",
    "survey",
]
