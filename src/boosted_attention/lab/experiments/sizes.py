"""Sizes and costs of the paper's own models, which are known without training."""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import BEATS_EQUAL_PARAMETERS, BEATS_STANDARD, BEATS_TWICING, Fact
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Table, cell, exactly
from boosted_attention.lab.judging.verdicts import digits
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.theory import SIZED, ModelSize
from boosted_attention.records import from_json

TITLE = "Sizes and costs of the paper's models"
STANDARD, TWICING, FAIR, BOOSTED, THREE = SIZED
PAPER = {STANDARD: 7.4, TWICING: 7.4, FAIR: 8.8, BOOSTED: 8.7}  # million parameters
FACT_OF: dict[str, Fact] = {
    STANDARD: BEATS_STANDARD,
    BOOSTED: BEATS_STANDARD,
    FAIR: BEATS_EQUAL_PARAMETERS,
    TWICING: BEATS_TWICING,
}
PARAMETERS = {name: Quantity(f"parameters (M), {name}", PAPER.get(name)) for name in SIZED}
MORE_PARAMETERS = Quantity("parameters, boosted over standard (%)", 18.0)
COST = {m: Quantity(f"attention FLOPs, M={m} over standard", float(m)) for m in (2, 3)}


def trials(preset: Preset) -> list[Trial]:
    return [Trial(work="theory.sizes", config={}, label="sizes of the paper's models", seconds=2.0)]


def collect(preset: Preset, results: Results) -> Table:
    table = Table(TITLE, ["parameters (M)", "attention FLOPs per token (M)"], precision=3)
    found = from_json(dict[str, ModelSize], results(trials(preset)[0]))
    for name, size in found.items():
        parameters = cell(PARAMETERS[name], exactly(size.parameters / 1e6))
        table.add_row(name, [parameters, Cell(exactly(size.attention_flops / 1e6))])
    standard = found[STANDARD]
    table.quantities[MORE_PARAMETERS] = exactly(100 * (found[BOOSTED].parameters / standard.parameters - 1))
    for m, name in ((2, BOOSTED), (3, THREE)):
        table.quantities[COST[m]] = exactly(found[name].attention_flops / standard.attention_flops)
    shown = ", ".join(f"{q.name} {table.quantities[q].mean:.2f}" for q in (MORE_PARAMETERS, *COST.values()))
    table.notes.append(f"Attention counts projections, gates and maps over all positions of the context. {shown}.")
    return table


CLAIMS = [
    *(
        claim(
            f"size-{name}",
            FACT_OF[name],
            PARAMETERS[name],
            digits(1),
            f"The {name} model has {PAPER[name]} M parameters.",
            section="6.1",
            paper=f"{PAPER[name]} M",
        )
        for name in PAPER
    ),
    claim(
        "size-more",
        BEATS_STANDARD,
        MORE_PARAMETERS,
        digits(0),
        f"Two rounds add about {MORE_PARAMETERS.paper:.0f} % parameters to the model.",
        section="3.1",
        paper=f"{MORE_PARAMETERS.paper:+.0f} %",
    ),
    *(
        claim(
            f"cost-{m}",
            BEATS_STANDARD,
            quantity,
            digits(0),
            f"With {m} rounds attention costs about {m} times as much as standard attention.",
            section="3.1",
            paper=f"about {m} times",
        )
        for m, quantity in COST.items()
    ),
]

EXPERIMENT = Experiment(
    name="sizes",
    title=TITLE,
    kind=Kind.THEORY,
    order=15,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    by_default=True,
)
