"""Section 4: the propositions as executable checks, each with its limit."""

from __future__ import annotations

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.common import WORK
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Table, exactly
from boosted_attention.lab.table import render as render_table
from boosted_attention.records import from_json
from boosted_attention.theory.finding import Finding

TITLE = "The propositions, measured, and where each says nothing (Section 4)"


def runs(preset: Preset) -> list[Run]:
    return [Run(work=f"{WORK}:propositions", config={"seed": 0}, label="propositions", seconds=5.0)]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, [])
    for finding in from_json(list[Finding], results(runs(preset)[0])):
        table.quantities[f"{finding.name} holds"] = exactly(float(finding.holds))
        table.quantities[f"{finding.name} limit shows"] = exactly(float(finding.counter_holds))
        for key, value in {**finding.measured, **finding.counter}.items():
            table.quantities[f"{finding.name}: {key}"] = exactly(value)
        table.notes.append(told(finding))
    return table


def told(finding: Finding) -> str:
    """One finding in a paragraph."""
    return (
        f"**{finding.name}** {'holds' if finding.holds else 'DOES NOT HOLD'}. {finding.paper} "
        f"Measured: {numbers(finding.measured)}. *Limit{'' if finding.counter_holds else ' (NOT SEEN)'}:* "
        f"{finding.condition} Measured: {numbers(finding.counter)}."
    )


def numbers(measured: dict[str, float]) -> str:
    return "; ".join(f"{key}: {value:.3g}" for key, value in measured.items())


def render(table: Table) -> str:
    return render_table(table)
