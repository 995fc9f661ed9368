"""Section 6.4: gates, hull distance and entropy of the trained models, with the controls the paper lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from boosted_attention.analysis.examine import Analysis
from boosted_attention.analysis.hull import BOOSTED_OUTPUT, RANDOM_CORRECTION, HullDistances
from boosted_attention.analysis.survey import by_layer
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import BOOSTED, PLAIN, STANDARD, seeds_of
from boosted_attention.lab.experiments.language._measures import (
    BETTER,
    BY_LAYER,
    ENTROPY_0,
    ENTROPY_1,
    ENTROPY_STANDARD,
    FARTHER,
    FITS,
    GAIN,
    HULL_AND_GATE,
    HULL_DISTANCE,
    IMPORTANCE_AND_GATE,
    LAYER_0_GATE,
    LAYER_1_GATE,
    LAYER_1_SPREAD,
    LAYERS,
    MEAN_GATE,
    MEASURES,
    OF_SEVERAL_LAYERS,
    OUTSIDE,
    PAPER,
    PAPER_ROWS,
    QUANTITIES,
    RANGES,
    RATIO_0,
    RATIO_1,
    RELATED,
    ROUND_0_OVER_STANDARD,
    ROUND_1_OVER_STANDARD,
    SHARPNESS_AND_GATE,
    SPREAD,
    Measure,
    hull_layers,
)
from boosted_attention.lab.experiments.language._shared import (
    WIKITEXT,
    against_zero,
    compare,
    located,
    places,
    short,
    tag,
    training_trials,
)
from boosted_attention.lab.experiments.language._trials import analysis_trial
from boosted_attention.lab.judging.claim import Claim, Role, claim
from boosted_attention.lab.judging.facts import DIVIDES_LABOUR, FRIEDMANS_BOOSTING, SEPARATE_PROJECTIONS, Fact
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Paired, Table, interval, over_seeds
from boosted_attention.lab.judging.verdicts import above, below, equal, number
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import Diverged, analysis_of
from boosted_attention.statistics import Estimate, estimate

TITLE = "What the rounds do (Section 6.4)"
Found = Mapping[int, Analysis]  # by seed


def analyses(preset: Preset, corpus: str) -> dict[int, Trial]:
    """The analysis of every seed's boosted model beside its standard one."""
    boosted, standard = PLAIN[BOOSTED], PLAIN[STANDARD]
    both = [seed for seed in seeds_of(preset, corpus, standard) if seed in seeds_of(preset, corpus, boosted)]
    analysed = both[: preset.text.analysed_seeds]
    return {seed: analysis_trial(preset, corpus, boosted, standard, seed) for seed in analysed}


def needed(preset: Preset) -> list[Trial]:
    """The analyses, which hold all that is shown."""
    return [trial for corpus in preset.text.corpora for trial in analyses(preset, corpus).values()]


def trials(preset: Preset) -> list[Trial]:
    return [*training_trials(preset, {name: PLAIN[name] for name in (BOOSTED, STANDARD)}), *needed(preset)]


def collect(preset: Preset, results: Results) -> Table:
    n_layers = preset.text.configuration().model.n_layers
    table = Table(TITLE, [f"layer {i}" for i in range(n_layers)], precision=3, places=places(preset))
    for corpus in preset.text.corpora:
        outcomes = {seed: analysis_of(results(trial)) for seed, trial in analyses(preset, corpus).items()}
        found = {seed: outcome for seed, outcome in outcomes.items() if isinstance(outcome, Analysis)}
        if len(found) < len(outcomes):
            told = [f"seed {s}: {one.diverged}" for s, one in outcomes.items() if isinstance(one, Diverged)]
            table.failed |= {located(preset, corpus, quantity): "a model diverged" for quantity in QUANTITIES}
            table.notes.append(f"{short(preset, corpus)}: a model of the pair diverged: {'; '.join(told)}.")
            continue
        if not found:
            table.missing |= {located(preset, corpus, quantity): "not run" for quantity in QUANTITIES}
            continue
        for name, measure in MEASURES.items():
            cells = row_cells(preset, found, name, measure, n_layers)
            table.add_row(f"{name}{tag(preset, corpus)}", cells)
            table.quantities |= {
                located(preset, corpus, BY_LAYER[name, layer]): cell.ours
                for layer, cell in enumerate(cells)
                if cell is not None and (name, layer) in BY_LAYER
            }
        add_differences(table, preset, corpus, found)
        compare(table, preset, corpus, gains(found))
        add_relations(table, preset, corpus, found)
        one = next(iter(found.values()))
        picked = "; ".join(f"seed {seed}: {a.importance.worth_boosting}" for seed, a in found.items())
        uniform = ", ".join(f"{kind} {100 * part:.1f}" for kind, part in one.specialisation.model.uniform.items())
        table.notes.append(
            f"{short(preset, corpus)}: {one.sequences} test sequences of {one.length} tokens, data {one.data}."
            f" Layers whose correction is missed, the interval over sequences above zero: {picked}."
            f" Uniform attention would give each kind of keys, in percent: {uniform}."
        )
        changes = [a.retrained for a in found.values() if a.retrained is not None]
        if changes:
            table.notes.append(
                f"{short(preset, corpus)}: trained anew for this analysis, since weights are not kept with results; of "
                f"{len(changes)} pairs a test loss then differed, by at most {max(changes):.4f} nats."
            )
    name_missing(table, n_layers)
    table.notes.append(
        "Entropies in nats over all query positions; ratios in percent of the standard model's layer. Hull distances "
        "at the paper's positions (up to 64 visible values) unless said otherwise. Importance is the loss without the "
        "layer's correction minus the loss with it. The paper's averages are of one model."
    )
    return table


def name_missing(table: Table, n_layers: int) -> None:
    """Say why a table lacks what only other models have."""
    fewer = {quantity for (_, layer), quantity in BY_LAYER.items() if layer >= n_layers}
    reasons = dict.fromkeys(fewer, f"the model has {n_layers} layers")
    reasons |= dict.fromkeys(OF_SEVERAL_LAYERS, "the model has one layer")
    reasons |= dict.fromkeys(RELATED, "the model has too few layers, or one of the two does not vary")
    reasons[FARTHER] = "no position sees more values than a head has dimensions"
    for text in table.places:
        located_reasons = {quantity.on(text): why for quantity, why in reasons.items()}
        known = {**table.quantities, **table.failed}
        table.missing |= {q: why for q, why in located_reasons.items() if q not in known}


def row_cells(preset: Preset, found: Found, name: str, measure: Measure, n_layers: int) -> list[Cell | None]:
    """A row by layer; None where a seed's model does not have the quantity."""
    paper = PAPER_ROWS.get(name, ()) if preset.text.is_the_papers else ()
    shown: list[Cell | None] = []
    for layer in range(n_layers):
        values = [measure(a, layer) for a in found.values()]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            shown.append(None)
            continue
        shown.append(Cell(bounded(name, estimate(known)), paper[layer] if layer < len(paper) else None))
    return shown


def bounded(name: str, e: Estimate) -> Estimate:
    """Cut an interval to the range of its quantity, which a t interval of few seeds may leave."""
    for part, (low, high) in RANGES.items():
        if part in name:
            return replace(e, low=max(low, e.low), high=min(high, e.high))
    return e


def mean_entropy(found: Found, m: int) -> dict[int, float]:
    """Mean over layers of a round's entropy, by seed."""
    return {seed: average([one.mean for one in by_layer(a.entropy.model, m).values()]) for seed, a in found.items()}


def mean_entropy_of_standard(found: Found) -> dict[int, float]:
    return {
        seed: average([one.mean for one in by_layer(a.entropy.against or [], 0).values()]) for seed, a in found.items()
    }


def add_differences(table: Table, preset: Preset, corpus: str, found: Found) -> None:
    """Compare the entropy of the rounds with the standard model's, and some layers' gates with the others'."""
    standard, first, second = mean_entropy_of_standard(found), mean_entropy(found, 0), mean_entropy(found, 1)
    left = [
        {seed: average([one.left for one in by_layer(a.dynamics, m).values()]) for seed, a in found.items()}
        for m in (0, 1)
    ]
    pairs = [
        Paired(ROUND_0_OVER_STANDARD, first, standard),
        Paired(ROUND_1_OVER_STANDARD, second, standard),
        Paired(FITS, left[1], left[0]),
    ]
    if len(table.columns) > 1:
        spread = {seed: {layer: g.spread for layer, g in by_layer(a.gates, 1).items()} for seed, a in found.items()}
        mean_gate = {seed: {layer: g.mean for layer, g in by_layer(a.gates, 1).items()} for seed, a in found.items()}
        pairs += [
            against_zero(LAYER_1_SPREAD, {seed: over_others(values, 1, max) for seed, values in spread.items()}),
            against_zero(LAYER_1_GATE, {seed: over_others(values, 1, max) for seed, values in mean_gate.items()}),
            against_zero(LAYER_0_GATE, {seed: over_others(values, 0, min) for seed, values in mean_gate.items()}),
        ]
    if not table.places[short(preset, corpus)].is_the_papers:  # sizes cannot be compared elsewhere
        pairs = [Paired(pair.quantity.with_paper(None), pair.a, pair.b) for pair in pairs]
    compare(table, preset, corpus, pairs)
    means = {ENTROPY_STANDARD: standard, ENTROPY_0: first, ENTROPY_1: second}
    table.quantities |= {located(preset, corpus, q): over_seeds(values) for q, values in means.items()}


def gains(found: Found) -> list[Paired]:
    """How much better the boosted model predicts the tokens of the test sequences than the standard one, by seed."""
    tokenwise = {seed: a.corrections for seed, a in found.items() if a.corrections is not None}
    assert len(tokenwise) == len(found)  # every analysis is of a pair
    return [
        against_zero(GAIN, {seed: 1000 * one.gain.mean for seed, one in tokenwise.items()}),
        against_zero(BETTER, {seed: 100 * one.share_better - 50 for seed, one in tokenwise.items()}),
    ]


def over_others(values: Mapping[int, float], layer: int, of: Callable[[list[float]], float]) -> float:
    """How much larger a layer's value is than the largest, or smallest, of the other layers'."""
    return values[layer] - of([v for other, v in values.items() if other != layer])


def add_relations(table: Table, preset: Preset, corpus: str, found: Found) -> None:
    """Add correlations across layers, and how often and how far outputs leave the hull."""
    for quantity, value in RELATED.items():
        values = [value(a.relations) for a in found.values()]
        known = [v for v in values if v is not None]
        if len(known) == len(values):
            ours = table.quantities[located(preset, corpus, quantity)] = bounded(quantity.name, estimate(known))
            name = f"{quantity.name}{tag(preset, corpus)}"
            table.notes.append(f"{name[0].upper()}{name[1:]} over layers: {interval(ours, 2)}.")
    layers = [hull_layers(a.hull.model) for a in found.values()]
    outside = [100 * average([row.paper[BOOSTED_OUTPUT].outside for row in rows]) for rows in layers]
    table.quantities[located(preset, corpus, OUTSIDE)] = bounded(OUTSIDE.name, estimate(outside))
    beyond = [[row.beyond_head_dim for row in rows if row.beyond_head_dim is not None] for rows in layers]
    if [len(rows) for rows in beyond] == [len(rows) for rows in layers]:  # equal norms: distances can be compared
        values = [average([farther(kinds) for kinds in rows]) for rows in beyond]
        table.quantities[located(preset, corpus, FARTHER)] = estimate(values)


def farther(kinds: Mapping[str, HullDistances]) -> float:
    """How much farther from the hull the correction leads than a random one of the same norm, in percent."""
    return 100 * (kinds[BOOSTED_OUTPUT].mean / kinds[RANDOM_CORRECTION].mean - 1)


def average(values: list[float]) -> float:
    return sum(values) / len(values)


def figure_of(
    id: str, fact: Fact, quantity: Quantity, sentence: str, rival: float = 0.0, paper: str | None = None
) -> Claim:
    """A claim about a number of Section 6.4, which is of one model on WikiText-103."""
    return claim(id, fact, quantity.on(WIKITEXT), number(rival=rival), sentence, section="6.4", paper=paper)


CLAIMS = [
    claim(
        "entropy-round-0",
        DIVIDES_LABOUR,
        ROUND_0_OVER_STANDARD,
        above(),
        "Round 0 of the boosted model is more diffuse than standard attention.",
        paper=f"{ENTROPY_0.paper} against {ENTROPY_STANDARD.paper}",
    ),
    claim(
        "entropy-round-1",
        DIVIDES_LABOUR,
        ROUND_1_OVER_STANDARD,
        below(),
        "Round 1 is more focused than standard attention.",
        paper=f"{ENTROPY_1.paper} against {ENTROPY_STANDARD.paper}",
    ),
    claim(
        "entropy-gate",
        DIVIDES_LABOUR,
        SHARPNESS_AND_GATE,
        above(),
        "Layers whose correction is sharper open their gate wider.",
        paper="correlated",
        role=Role.ASIDE,
    ),
    claim(
        "gate-widest",
        DIVIDES_LABOUR,
        LAYER_1_GATE,
        above(),
        "Layer 1 opens its gate widest.",
        paper=f"{PAPER.mean_gate[1]}",
        role=Role.ASIDE,
    ),
    claim(
        "gate-narrowest",
        DIVIDES_LABOUR,
        LAYER_0_GATE,
        below(),
        "Layer 0 opens its gate least.",
        paper=f"{PAPER.mean_gate[0]}",
        role=Role.ASIDE,
    ),
    claim(
        "gate-spread",
        DIVIDES_LABOUR,
        LAYER_1_SPREAD,
        above(),
        "Layer 1's gates vary more over dimensions than those of any other layer.",
        paper=f"{PAPER.spread_of_gates[1]}",
        role=Role.ASIDE,
    ),
    claim(
        "hull-all",
        SEPARATE_PROJECTIONS,
        OUTSIDE,
        equal(100.0, 1.0),
        "Every sampled output is outside the hull.",
        section="6.4",
        paper="100 %",
    ),
    claim(
        "hull-ranking",
        SEPARATE_PROJECTIONS,
        HULL_AND_GATE,
        equal(1.0, 0.1),
        "The layers' hull distances rank as their gates do.",
        section="6.4",
        paper="the same ranking",
        role=Role.ASIDE,
    ),
    *(
        figure_of(
            f"gate-layer-{i}",
            DIVIDES_LABOUR,
            BY_LAYER[MEAN_GATE, i],
            f"The mean gate of layer {i} is {PAPER.mean_gate[i]}.",
            rival=0.5,  # where gates start
        )
        for i in LAYERS
    ),
    *(
        figure_of(
            f"gate-layer-{i}-spread",
            DIVIDES_LABOUR,
            BY_LAYER[SPREAD, i],
            f"Layer {i}'s gates have a standard deviation of {spread} over dimensions.",
        )
        for i, spread in enumerate(PAPER.spread_of_gates)
        if spread is not None
    ),
    *(
        figure_of(
            f"hull-layer-{i}",
            SEPARATE_PROJECTIONS,
            BY_LAYER[HULL_DISTANCE, i],
            f"The mean distance from the hull in layer {i} is {PAPER.hull_distance[i]}.",
        )
        for i in LAYERS
    ),
    *(
        figure_of(
            f"entropy-{tagged}",
            DIVIDES_LABOUR,
            quantity,
            f"{said} has a mean entropy of {quantity.paper} nats.",
            rival=rival.paper or 0.0,
            paper=f"{quantity.paper} nats",
        )
        for tagged, quantity, rival, said in (
            ("standard-size", ENTROPY_STANDARD, ENTROPY_0, "Standard attention"),
            ("round-0-size", ENTROPY_0, ENTROPY_STANDARD, "Round 0"),
            ("round-1-size", ENTROPY_1, ENTROPY_STANDARD, "Round 1"),
        )
    ),
    *(
        figure_of(
            f"entropy-layer-1-round-{m}",
            DIVIDES_LABOUR,
            BY_LAYER[ratio, 1],
            f"In layer 1 the entropy of round {m} differs from the standard model's by {percent:+.0f} %.",
            paper=f"{percent:+.0f} %",
        )
        for m, ratio, percent in (
            (0, RATIO_0, PAPER.entropy_ratio_round_0[1]),
            (1, RATIO_1, PAPER.entropy_ratio_round_1[1]),
        )
    ),
    claim(
        "hull-random",
        SEPARATE_PROJECTIONS,
        FARTHER,
        above(),
        "A learned correction leaves the hull farther than a random one of the same norm, where more values are "
        "visible than a head has dimensions.",
        section="6.4",
        paper="not measured",
        role=Role.CONTROL,
    ),
    claim(
        "gate-importance",
        DIVIDES_LABOUR,
        IMPORTANCE_AND_GATE,
        above(),
        "The layers with wider gates are those whose correction matters more.",
        paper="not measured",
        role=Role.CONTROL,
    ),
    claim(
        "lm-fit",
        FRIEDMANS_BOOSTING,
        FITS,
        below(),
        "A round fits its residual: ||x - F|| is smaller behind round 1 than behind round 0.",
        section="6.4",
        paper="not measured",
        role=Role.CONTROL,
    ),
]

EXPERIMENT = Experiment(
    name="analysis",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=200,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    needed=needed,
    by_default=True,
)
