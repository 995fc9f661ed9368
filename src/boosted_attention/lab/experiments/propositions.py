"""Section 4: the propositions as executable checks, each with its limit."""

from __future__ import annotations

from dataclasses import dataclass

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import (
    FRIEDMANS_BOOSTING,
    ITERATION_COLLAPSES,
    NEEDS_PRE_LN,
    SEPARATE_PROJECTIONS,
    TWO_ROUNDS,
    Fact,
)
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Table, exactly
from boosted_attention.lab.judging.verdicts import HOLDS
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.records import from_json
from boosted_attention.theory.finding import Finding

TITLE = "The propositions, measured, and where each says nothing (Section 4)"
PROVED, CITED, STATED, MEASURED = "proved", "cited", "stated", "measured"


@dataclass(frozen=True)
class Statement:
    """What a check is about."""

    fact: Fact
    section: str
    paper: str  # on what the paper rests it
    sentence: str
    role: Role = Role.PART


STATEMENTS = {  # by the name of the check
    "1a": Statement(
        ITERATION_COLLAPSES, "4.1", PROVED, "One step of attention lands in the convex hull of the values."
    ),
    "1b": Statement(ITERATION_COLLAPSES, "4.1", PROVED, "What is orthogonal to the patterns is erased in one step."),
    "1c": Statement(ITERATION_COLLAPSES, "4.1", PROVED, "Every fixed point lies in the convex hull of the patterns."),
    "1-remark": Statement(
        ITERATION_COLLAPSES, "4.1", CITED, "Queries of one contraction region converge to the same point."
    ),
    "energy": Statement(
        ITERATION_COLLAPSES,
        "2.2",
        CITED,
        "The Hopfield update is xi minus the energy's gradient and never raises the energy.",
        Role.ASIDE,
    ),
    "fixed-points": Statement(
        ITERATION_COLLAPSES,
        "2.2",
        CITED,
        "Fixed points are global averages, averages over subsets, or single patterns.",
        Role.ASIDE,
    ),
    "2": Statement(
        FRIEDMANS_BOOSTING, "4.2", PROVED, "The residual x - F is the negative gradient of the squared loss."
    ),
    "2-gate": Statement(
        FRIEDMANS_BOOSTING, "3.1", STATED, "With a scalar gate the layer is exactly boosting with shrinkage."
    ),
    "bayes": Statement(
        TWO_ROUNDS,
        "App. C",
        CITED,
        "The Bayes predictor is attention with identity projections and beta = 1/sigma^2.",
        Role.ASIDE,
    ),
    "3a": Statement(SEPARATE_PROJECTIONS, "4.3", PROVED, "Twicing stays in the row span of the values."),
    "3b": Statement(SEPARATE_PROJECTIONS, "4.3", PROVED, "Twicing's correction has no parameters of its own."),
    "3c": Statement(
        SEPARATE_PROJECTIONS, "4.3", PROVED, "Boosting's correction leaves the row span of round 0's values."
    ),
    "3-hull": Statement(
        SEPARATE_PROJECTIONS,
        "6.4",
        MEASURED,
        "The boosted output leaves the hull of round 0's values at every position up to d_h.",
    ),
    "3-spectrum": Statement(
        SEPARATE_PROJECTIONS,
        "4.3",
        CITED,
        "Twicing slows the decay of capacity with depth from 1/n to 1/sqrt(n).",
        Role.ASIDE,
    ),
    "4a": Statement(NEEDS_PRE_LN, "4.4", PROVED, "Under Pre-LN a correction enters the stream unchanged."),
    "4b": Statement(NEEDS_PRE_LN, "4.4", PROVED, "Under Post-LN it passes LayerNorm's Jacobian, of rank d - 2."),
    "4-stream": Statement(
        NEEDS_PRE_LN, "4.4", STATED, "A Pre-LN stream is its start plus the sum of what the layers add."
    ),
}
HOLD = {name: Quantity(f"{name} holds") for name in STATEMENTS}
LIMIT = {name: Quantity(f"{name} limit shows") for name in STATEMENTS}


def trials(preset: Preset) -> list[Trial]:
    return [Trial(work="theory.propositions", config={"seed": 0}, label="propositions", seconds=5.0)]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [])
    for values in results(trials(preset)[0]):
        finding = from_json(Finding, values)
        table.quantities[HOLD[finding.name]] = exactly(float(finding.holds))
        table.quantities[LIMIT[finding.name]] = exactly(float(finding.counter_holds))
        table.notes.append(describe(finding))
    return table


def describe(finding: Finding) -> str:
    """A finding as a paragraph of Markdown."""

    def numbers(measured: dict[str, float]) -> str:
        return "; ".join(f"{key}: {value:.3g}" for key, value in measured.items())

    return (
        f"**{finding.name}** {'holds' if finding.holds else 'DOES NOT HOLD'}. {finding.paper} "
        f"Measured: {numbers(finding.measured)}. *Limit{'' if finding.counter_holds else ' (NOT SEEN)'}:* "
        f"{finding.condition} Measured: {numbers(finding.counter)}."
    )


CLAIMS = [
    claim(f"theory-{name}", s.fact, HOLD[name], HOLDS, s.sentence, section=s.section, paper=s.paper, role=s.role)
    for name, s in STATEMENTS.items()
]

EXPERIMENT = Experiment(
    name="propositions",
    title=TITLE,
    kind=Kind.THEORY,
    order=10,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    by_default=True,
)
