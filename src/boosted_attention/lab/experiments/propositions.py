"""Section 4: the propositions as executable checks, each with its limit."""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment, Kind, Results
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Table, exactly
from boosted_attention.lab.judging.verdicts import HOLDS
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.records import from_json
from boosted_attention.theory.finding import Finding

TITLE = "The propositions, measured, and where each says nothing (Section 4)"
STATEMENTS = {  # name of the check: section, sentence
    "energy": ("2.2", "The Hopfield update is xi minus the energy's gradient and never raises the energy."),
    "fixed-points": ("2.2", "Fixed points are global averages, averages over subsets, or single patterns."),
    "1a": ("4.1", "One step of attention lands in the convex hull of the values."),
    "1b": ("4.1", "What is orthogonal to the patterns is erased in one step."),
    "1c": ("4.1", "Every fixed point lies in the convex hull of the patterns."),
    "1-remark": ("4.1", "Queries of one contraction region converge to the same point."),
    "2": ("4.2", "The residual x - F is the negative gradient of the squared loss."),
    "2-gate": ("3.1", "With a scalar gate the layer is exactly boosting with shrinkage."),
    "bayes": ("App. C", "The Bayes predictor is attention with identity projections and beta = 1/sigma^2."),
    "3a": ("4.3", "Twicing stays in the row span of the values."),
    "3b": ("4.3", "Twicing's correction has no parameters of its own."),
    "3c": ("4.3", "Boosting's correction leaves the row span of round 0's values."),
    "3-hull": ("6.4", "The boosted output leaves the hull of round 0's values at every position up to d_h."),
    "3-spectrum": ("4.3", "Twicing slows the decay of capacity with depth from 1/n to 1/sqrt(n)."),
    "4a": ("4.4", "Under Pre-LN a correction enters the stream unchanged."),
    "4b": ("4.4", "Under Post-LN it passes LayerNorm's Jacobian, of rank d - 2."),
    "4-stream": ("4.4", "A Pre-LN stream is its start plus the sum of what the layers add."),
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
    claim(f"theory-{name}", section, HOLD[name], HOLDS, sentence, paper="proved")
    for name, (section, sentence) in STATEMENTS.items()
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
