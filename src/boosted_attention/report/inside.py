"""Figures of one analysis: what the rounds of a trained model do (the paper's Figures 3 to 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from boosted_attention.analysis.corrections import Example
from boosted_attention.analysis.dynamics import RoundDynamics
from boosted_attention.analysis.examine import Analysis, Names
from boosted_attention.analysis.gates import GateFinding
from boosted_attention.analysis.hull import BOOSTED_OUTPUT, FIRST_ESTIMATE, MOST_VISIBLE, HullDistances, LayerHull
from boosted_attention.analysis.specialisation import KEY_KINDS
from boosted_attention.analysis.survey import by_layer
from boosted_attention.chart import Figure, Panel, Series, beside
from boosted_attention.lab.experiments.language._measures import PaperNumbers

EXAMPLES = 2  # of gains, and of losses
WINDOW = 14  # tokens of an example's context that fit a chart
T_co = TypeVar("T_co", covariant=True)


def inside_figures(analysis: Analysis, names: Names, paper: PaperNumbers | None = None) -> list[Figure]:
    """Make every figure there is data for.

    Args:
        analysis: what was found.
        names: what the model and the one it is compared with are called.
        paper: the paper's numbers, which captions then set beside those found.
    """
    drawn = [
        draw_gates(analysis, paper),
        draw_importance(analysis),
        draw_entropy(analysis, names, paper),
        draw_hull(analysis, names, paper),
        draw_dynamics(analysis),
        draw_specialisation(analysis, names),
        draw_examples(analysis, names),
    ]
    return [figure for figure in drawn if figure is not None]


class Sides(Protocol[T_co]):
    """Something found for a model and, where there is one, for the model it is compared with."""

    @property
    def model(self) -> T_co: ...
    @property
    def against(self) -> T_co | None: ...


T = TypeVar("T")


@dataclass(frozen=True)
class AttentionMap:
    """One attention map of every layer: a round of the model, or of the one it is compared with."""

    label: str
    theirs: bool
    round: int

    def side(self, sides: Sides[T]) -> T:
        """Return what was found about this map's model."""
        if not self.theirs:
            return sides.model
        assert sides.against is not None
        return sides.against


def maps(analysis: Analysis, names: Names) -> list[AttentionMap]:
    """Every attention map: the other model's, then the rounds of this one that have one."""
    mine, theirs = (
        sorted({found.round for found in side or []}) for side in (analysis.entropy.model, analysis.entropy.against)
    )
    named = names.against
    others = [AttentionMap(named if len(theirs) == 1 else f"{named}, round {m}", True, m) for m in theirs]
    return others + [AttentionMap(f"round {m}", False, m) for m in mine]


def layer_ticks(analysis: Analysis) -> dict[float, str]:
    return {float(i): str(i) for i in range(len(analysis.layers))}


def draw_gates(analysis: Analysis, paper: PaperNumbers | None) -> Figure | None:
    """How far the gates open; None for a model without corrections."""
    gates = analysis.gates
    if not gates:
        return None
    several = any(gate.round > 1 for gate in gates)

    def panel(title: str, x_label: str, y_label: str, series: list[Series], **more: Any) -> Panel:
        return Panel(title=title, x_label=x_label, y_label=y_label, series=series, **more)

    def name(gate: GateFinding) -> str:
        return f"layer {gate.layer}" + (f", round {gate.round}" if several else "")

    by_dimension = [Series(name=name(g), x=range(len(g.dimensions)), y=sorted(g.dimensions)) for g in gates]
    bins = [
        Series(name=name(g), x=g.histogram.centres(), y=[100 * share for share in g.histogram.share]) for g in gates
    ]
    by_position = [Series(name=name(g), x=range(len(g.positions)), y=g.positions) for g in gates]
    means = ", ".join(f"{g.mean:.3f} ± {g.spread:.3f}" for g in gates)
    return Figure(
        name="gates",
        title="How far the gates open",
        caption=f"The paper's Figure 3. Mean and spread over dimensions by layer: {means}{told_gates(paper)}. Over "
        f"{analysis.sequences} test sequences.",
        panels=[
            panel("Mean gate of each dimension, sorted", "dimension", "gate", by_dimension, levels={"one half": 0.5}),
            panel("Distribution over all gates", "gate", "share (%)", bins, from_zero=True),
            panel("By position", "position", "mean gate", by_position),
        ],
    )


def told_gates(paper: PaperNumbers | None) -> str:
    """The paper's gates in brackets."""
    if paper is None:
        return ""
    both = zip(paper.mean_gate, paper.spread_of_gates, strict=True)
    shown = [f"{mean}" if spread is None else f"{mean} ± {spread}" for mean, spread in both]
    return f" (the paper: {', '.join(shown)})"


def draw_importance(analysis: Analysis) -> Figure | None:
    """What each correction is worth; None for a model without corrections."""
    found = analysis.importance
    if not found.layers or found.all is None:
        return None
    values = [*found.layers, found.all]
    labels = [*(f"layer {one.layer}" for one in found.layers), "all"]
    series = Series(
        name="loss without the correction, minus loss with it",
        x=range(len(values)),
        y=[one.mean for one in values],
        low=[one.low for one in values],
        high=[one.high for one in values],
        style="bars",
    )
    return Figure(
        name="importance",
        title="What each correction is worth",
        caption="Not in the paper: the change in test loss when a layer's correction is switched off, with the 95 % "
        "interval over sequences. It says what the trained model relies on, not how a model trained without would do. "
        f"Layers worth boosting by it: {found.worth_boosting}.",
        panels=[
            Panel(
                x_label="",
                y_label="nats per token",
                series=[series],
                ticks={float(i): label for i, label in enumerate(labels)},
            )
        ],
    )


def draw_entropy(analysis: Analysis, names: Names, paper: PaperNumbers | None) -> Figure:
    """How widely each map attends: distribution over queries, and mean by layer."""
    spread, means = [], []
    for one in maps(analysis, names):
        chosen = by_layer(one.side(analysis.entropy), one.round)
        histograms = [found.histogram for found in chosen.values()]
        average = [100 * sum(column) / len(column) for column in zip(*(h.share for h in histograms), strict=True)]
        spread.append(Series(name=one.label, x=histograms[0].centres(), y=average))
        means.append(Series(name=one.label, x=list(chosen), y=[found.mean for found in chosen.values()]))
    told = ", ".join(f"{s.name} {sum(s.y) / len(s.y):.2f}" for s in means)
    tokenwise = {layer: f.correlation_with_gate for layer, f in by_layer(analysis.entropy.model, 1).items()}
    related = ", ".join(f"layer {layer} {value:+.2f}" for layer, value in tokenwise.items() if value is not None)
    return Figure(
        name="entropy",
        title="Entropy of attention",
        caption=f"The paper's Figure 5. Mean over layers and heads, in nats: {told}{told_entropy(paper)}."
        + (f" Token by token, round 1's sharpness and its gate correlate by {related}." if related else ""),
        panels=[
            Panel(
                title="All layers and heads",
                x_label="entropy (nats)",
                y_label="share of queries (%)",
                series=spread,
                from_zero=True,
            ),
            Panel(
                title="By layer",
                x_label="layer",
                y_label="mean entropy (nats)",
                series=means,
                ticks=layer_ticks(analysis),
            ),
        ],
    )


def told_entropy(paper: PaperNumbers | None) -> str:
    """The paper's mean entropies in brackets."""
    if paper is None:
        return ""
    return (
        f" (the paper, with contexts of {paper.context} tokens: standard {paper.entropy_standard}, round 0 "
        f"{paper.entropy_round_0}, round 1 {paper.entropy_round_1})"
    )


Kinds = dict[str, HullDistances]


def draw_hull(analysis: Analysis, names: Names, paper: PaperNumbers | None) -> Figure | None:
    """Distances from the hull; None where no layer has any, or none has a correction."""
    rows = [row for row in analysis.hull.model.layers or [] if BOOSTED_OUTPUT in row.paper]
    if not rows:
        return None
    other = analysis.hull.against
    theirs = {row.layer: row for row in (other.layers if other is not None else None) or []}
    places: dict[str, Callable[[LayerHull], Kinds | None]] = {
        f"Up to {MOST_VISIBLE} visible values, as in the paper": lambda row: row.paper,
        "More values than dimensions": lambda row: row.beyond_head_dim,
    }
    panels = []
    for title, place in places.items():
        mine = {row.layer: kinds for row in rows if (kinds := place(row)) is not None}
        if len(mine) == len(rows):
            others = {i: kinds for i in mine if i in theirs and (kinds := place(theirs[i])) is not None}
            panels.append(hull_panel(title, mine, others, names, layer_ticks(analysis)))
    few = 100 * rows[0].paper[BOOSTED_OUTPUT].up_to_head_dim
    outside = {kind: [f"{100 * row.paper[kind].outside:.0f}" for row in rows] for kind in rows[0].paper}
    shares = "; ".join(f"{kind} {', '.join(values)}" for kind, values in outside.items())
    means = "" if paper is None else f" (means {', '.join(map(str, paper.hull_distance))})"
    return Figure(
        name="hull",
        title="Distance from the hull of round 0's values",
        caption=f"The paper's Figure 4{means} with its controls: means, and the range of the middle 80 %. Outside, in "
        f"percent by layer: {shares}. A head has {rows[0].head_dim} dimensions; {few:.0f} % of the paper's positions "
        "see no more values than that, and so few have a hull without volume, which every generic change leaves. What "
        "the correction learned is its difference from the random one.",
        panels=panels,
    )


def hull_panel(
    title: str, mine: dict[int, Kinds], theirs: dict[int, Kinds], names: Names, ticks: dict[float, str]
) -> Panel:
    """Distances by layer: every kind of output of the model, beside the other model's first estimate."""
    kinds, series = list(next(iter(mine.values()))), []
    if theirs:
        series.append(
            Series(
                name=names.against,
                x=[layer - 0.12 * (len(kinds) + 1) / 2 for layer in theirs],
                y=[found[FIRST_ESTIMATE].mean for found in theirs.values()],
                style="points",
            )
        )
    for i, kind in enumerate(kinds):
        described = [found[kind] for found in mine.values()]
        series.append(
            Series(
                name=kind,
                x=[layer + 0.12 * (i - (len(kinds) - 1) / 2) for layer in mine],
                y=[d.mean for d in described],
                low=[d.deciles[1] for d in described],
                high=[d.deciles[9] for d in described],
                style="points",
            )
        )
    return Panel(
        title=title, x_label="layer", y_label="distance from the hull", series=series, ticks=ticks, from_zero=True
    )


def draw_dynamics(analysis: Analysis) -> Figure | None:
    """What the rounds did during training; None without corrections or with fewer than two evaluations."""
    training, n_rounds = analysis.training or [], max(analysis.rounds)
    if n_rounds < 2 or len(training) < 2:
        return None
    quantities: list[tuple[str, int, Callable[[RoundDynamics], float]]] = [
        *((f"||x - F|| / ||x|| after round {m}", m, lambda d: d.left) for m in range(n_rounds)),
        *((f"Cosine of correction {m} and its residual", m, lambda d: d.cosine) for m in range(1, n_rounds)),
        *((f"Mean gate of round {m}", m, lambda d: d.gate) for m in range(1, n_rounds)),
    ]
    panels = []
    for title, m, value in quantities:
        by_step = {at.step: by_layer(at.rounds, m) for at in training}
        series = []
        for layer in sorted(set.intersection(*(set(found) for found in by_step.values()))):
            y = [value(found[layer]) for found in by_step.values()]
            series.append(Series(name=f"layer {layer}", x=list(by_step), y=y))
        if series:
            panels.append(Panel(title=title, x_label="training step", y_label="", series=series))
    first, last = (by_layer(training[-1].rounds, m) for m in (0, n_rounds - 1))
    fell = "; ".join(f"layer {layer} {first[layer].left:.3f} to {last[layer].left:.3f}" for layer in sorted(last))
    return Figure(
        name="dynamics",
        title="Do rounds fit their residual?",
        caption="Not in the paper, which calls a round a fit of the residual: on a few rows of validation text, how "
        f"much of x is left before and after the corrections. At the last step: {fell}.",
        panels=panels,
    )


def draw_specialisation(analysis: Analysis, names: Names) -> Figure:
    """Shares of attention on kinds of keys, over all layers and heads."""
    groups = maps(analysis, names)

    def bars(label: str, index: int, values: list[float]) -> Series:
        offset, width = beside(len(groups) + 1, index)
        x = [k + offset for k in range(len(KEY_KINDS))]
        return Series(name=label, x=x, y=values, style="bars", width=width)

    series = []
    for i, one in enumerate(groups):
        rows = [row.mean for row in by_layer(one.side(analysis.specialisation).rows, one.round).values()]
        series.append(bars(one.label, i, [100 * sum(row[kind] for row in rows) / len(rows) for kind in KEY_KINDS]))
    uniform = [100 * analysis.specialisation.model.uniform[kind] for kind in KEY_KINDS]
    series.append(bars("uniform attention", len(groups), uniform))
    return Figure(
        name="specialisation",
        title="What is attended to",
        caption="Not in the paper: the share of attention on a few kinds of keys, which overlap, over all layers and "
        "heads; the table below has them by layer and round.",
        panels=[
            Panel(
                x_label="",
                y_label="share of attention (%)",
                series=series,
                ticks={float(k): kind for k, kind in enumerate(KEY_KINDS)},
            )
        ],
    )


def draw_examples(analysis: Analysis, names: Names) -> Figure | None:
    """The largest gains and losses with what both models attended to; None without a comparison."""
    found = analysis.corrections
    if found is None:
        return None
    layer, groups = min(1, len(analysis.layers) - 1), maps(analysis, names)
    panels = [example_panel("gain", example, layer, groups, names) for example in found.gains[:EXAMPLES]]
    panels += [example_panel("loss", example, layer, groups, names) for example in found.losses[:EXAMPLES]]
    return Figure(
        name="examples",
        title=f"Where {names.model} gains and where it loses most against {names.against}",
        caption="The paper's Figure 6 shows two gains; these are the two largest gains and the two largest losses, one "
        f"per sequence, with the attention of layer {layer} over the last {WINDOW} tokens, averaged over heads. "
        f"Titles: the target, then both predictions with their losses. Of {found.tokens:,} tokens "
        f"{100 * found.share_better:.1f} % are predicted better; the mean gain is {found.gain.shown()} nats.",
        panels=panels,
    )


def example_panel(kind: str, example: Example, layer: int, groups: Sequence[AttentionMap], names: Names) -> Panel:
    """One predicted token: what each map of a layer attended to."""
    shown = []
    for one in groups:
        layers = one.side(example).attention
        if layer < len(layers) and one.round < len(layers[layer]):
            shown.append((one.label, layers[layer][one.round][-WINDOW:]))
    series = []
    for i, (label, weights) in enumerate(shown):
        offset, width = beside(len(shown), i)
        x = [k + offset for k in range(len(weights))]
        series.append(Series(name=label, x=x, y=weights, style="bars", width=width))
    mine, theirs = example.model, example.against
    return Panel(
        title=f"{kind}: {visible(example.target)}; {names.against} {visible(theirs.top[0].token)} ({theirs.loss:.1f}), "
        f"{names.model} {visible(mine.top[0].token)} ({mine.loss:.1f})",
        x_label="",
        y_label="attention",
        series=series,
        ticks={float(k): visible(word) for k, word in enumerate(example.context[-WINDOW:])},
    )


def visible(text: str) -> str:
    """Show a token with marks for its blanks, shortened to twelve characters."""
    shown = text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    shown = "".join(c if c.isprintable() else "·" for c in shown)
    return shown if len(shown) <= 12 else shown[:11] + "…"
