"""Figures of one analysis: what the rounds of a trained model do (the paper's Figures 3 to 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boosted_attention.analysis.entropy import by_layer
from boosted_attention.analysis.specialisation import KINDS
from boosted_attention.report.chart import Figure, Panel, Series, beside

Analysis = dict[str, Any]
EXAMPLES = 2  # of gains, and of losses
WINDOW = 14  # tokens of an example's context that fit a chart


def inside_figures(analysis: Analysis, called: Mapping[str, str]) -> list[Figure]:
    """Every figure there is data for; ``called`` names the model and the one it is compared with."""
    drawn = [
        draw_gates(analysis),
        draw_importance(analysis),
        draw_entropy(analysis, called),
        draw_hull(analysis, called),
        draw_dynamics(analysis),
        draw_specialisation(analysis, called),
        draw_examples(analysis, called),
    ]
    return [figure for figure in drawn if figure is not None]


def maps(analysis: Analysis, called: Mapping[str, str]) -> list[tuple[str, str, int]]:
    """(label, side, round) of every attention map: the other model's, then the rounds of this one."""
    theirs = analysis["entropy"]["against"] or []
    n_theirs = 1 + max((row["round"] for row in theirs), default=-1)
    named = called["against"]
    others = [(named if n_theirs == 1 else f"{named}, round {m}", "against", m) for m in range(n_theirs)]
    return others + [(f"round {m}", "model", m) for m in range(max(analysis["rounds"]))]


def layer_ticks(analysis: Analysis) -> dict[float, str]:
    return {float(i): str(i) for i in range(len(analysis["layers"]))}


def draw_gates(analysis: Analysis) -> Figure | None:
    rows = analysis["gates"]
    if not rows:
        return None
    several = any(row["round"] > 1 for row in rows)

    def panel(title: str, x_label: str, y_label: str, series: list[Series], **more: Any) -> Panel:
        return Panel(title=title, x_label=x_label, y_label=y_label, series=series, **more)

    def name(row: dict[str, Any]) -> str:
        return f"layer {row['layer']}" + (f", round {row['round']}" if several else "")

    half = {"one half": 0.5}
    by_dimension = [
        Series(name=name(row), x=range(len(row["dimensions"])), y=sorted(row["dimensions"])) for row in rows
    ]
    bins = [
        Series(name=name(row), x=centres(row["histogram"]), y=[100 * s for s in row["histogram"]["share"]])
        for row in rows
    ]
    by_position = [Series(name=name(row), x=range(len(row["positions"])), y=row["positions"]) for row in rows]
    means = ", ".join(f"{row['mean']:.3f} ± {row['spread']:.3f}" for row in rows)
    return Figure(
        name="gates",
        title="How far the gates open",
        caption=f"The paper's Figure 3. Mean and spread over dimensions by layer: {means} (the paper: 0.33 ± 0.08, "
        f"0.49 ± 0.22, 0.39, 0.36). Over {analysis['sequences']} test sequences.",
        panels=[
            panel("Mean gate of each dimension, sorted", "dimension", "gate", by_dimension, levels=half),
            panel("Distribution over all gates", "gate", "share (%)", bins, from_zero=True),
            panel("By position", "position", "mean gate", by_position),
        ],
    )


def centres(histogram: dict[str, Any]) -> list[float]:
    n = len(histogram["share"])
    size = (histogram["high"] - histogram["low"]) / n
    return [histogram["low"] + (i + 0.5) * size for i in range(n)]


def draw_importance(analysis: Analysis) -> Figure | None:
    found = analysis["importance"]
    if not found["layers"]:
        return None
    rows = [*found["layers"], {"layer": "all", **found["all"]}]
    series = Series(
        name="loss without the correction, minus loss with it",
        x=range(len(rows)),
        y=[row["mean"] for row in rows],
        low=[row["low"] for row in rows],
        high=[row["high"] for row in rows],
        style="bars",
    )
    ticks = {float(i): f"layer {row['layer']}" if row["layer"] != "all" else "all" for i, row in enumerate(rows)}
    return Figure(
        name="importance",
        title="What each correction is worth",
        caption="Not in the paper: the change in test loss when a layer's correction is switched off, with the 95 % "
        "interval over sequences. It says what the trained model relies on, not how a model trained without would do. "
        f"Layers worth boosting by it: {found['worth_boosting']}.",
        panels=[Panel(x_label="", y_label="nats per token", series=[series], ticks=ticks)],
    )


def draw_entropy(analysis: Analysis, called: Mapping[str, str]) -> Figure:
    entropy = analysis["entropy"]
    spread, means = [], []
    for name, side, m in maps(analysis, called):
        rows = entropy[side]
        chosen = [row for row in rows if row["round"] == m]
        shares = [row["histogram"]["share"] for row in chosen]
        average = [100 * sum(column) / len(column) for column in zip(*shares, strict=True)]
        spread.append(Series(name=name, x=centres(chosen[0]["histogram"]), y=average))
        values = by_layer(rows, m)
        means.append(Series(name=name, x=list(values), y=list(values.values())))
    told = ", ".join(f"{s.name} {sum(s.y) / len(s.y):.2f}" for s in means)
    tokenwise = [(row["layer"], row.get("correlation_with_gate")) for row in entropy["model"] if row["round"] == 1]
    related = ", ".join(f"layer {layer} {value:+.2f}" for layer, value in tokenwise if value is not None)
    return Figure(
        name="entropy",
        title="Entropy of attention",
        caption=f"The paper's Figure 5. Mean over layers and heads, in nats: {told} (the paper, with "
        "contexts of 256 tokens: standard 2.71, round 0 3.34, round 1 2.55)."
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


HULL_PANELS = {"paper": "Up to 64 visible values, as in the paper", "beyond head_dim": "More values than dimensions"}


def draw_hull(analysis: Analysis, called: Mapping[str, str]) -> Figure | None:
    every = analysis["hull"]["model"]["layers"] or []
    rows = [row for row in every if "boosted" in row["paper"]]  # a layer of one round has nothing to measure
    if not rows:
        return None
    theirs = {row["layer"]: row for row in (analysis["hull"]["against"] or {}).get("layers") or []}
    panels = []
    for where, title in HULL_PANELS.items():
        if not all(where in row for row in rows):
            continue
        series = []
        kinds = list(rows[0][where])
        beside_them = [theirs[row["layer"]] for row in rows if where in theirs.get(row["layer"], {})]
        if beside_them:
            inside = [row[where]["first estimate"]["mean"] for row in beside_them]
            where_x = [row["layer"] - 0.12 * (len(kinds) + 1) / 2 for row in beside_them]
            series.append(Series(name=called["against"], x=where_x, y=inside, style="points"))
        for i, kind in enumerate(kinds):
            described = [row[where][kind] for row in rows]
            series.append(
                Series(
                    name=kind,
                    x=[row["layer"] + 0.12 * (i - (len(kinds) - 1) / 2) for row in rows],
                    y=[d["mean"] for d in described],
                    low=[d["deciles"][1] for d in described],
                    high=[d["deciles"][9] for d in described],
                    style="points",
                )
            )
        panels.append(
            Panel(
                title=title,
                x_label="layer",
                y_label="distance from the hull",
                series=series,
                ticks=layer_ticks(analysis),
                from_zero=True,
            )
        )
    few = 100 * rows[0]["paper"]["boosted"]["up_to_head_dim"]
    outside = {kind: [f"{100 * row['paper'][kind]['outside']:.0f}" for row in rows] for kind in rows[0]["paper"]}
    shares = "; ".join(f"{kind} {', '.join(values)}" for kind, values in outside.items())
    return Figure(
        name="hull",
        title="Distance from the hull of round 0's values",
        caption="The paper's Figure 4 (means 0.88, 5.19, 4.25, 3.41) with its controls: means, and the range of the "
        f"middle 80 %. Outside, in percent by layer: {shares}. A head has {rows[0]['head_dim']} dimensions; {few:.0f} "
        "% of the paper's positions see no more values than that, and so few have a hull without volume, which every "
        "generic change leaves. What the correction learned is its difference from the random one.",
        panels=panels,
    )


def draw_dynamics(analysis: Analysis) -> Figure | None:
    training = analysis.get("training") or []
    n_rounds = max(analysis["rounds"])
    if n_rounds < 2 or len(training) < 2:
        return None
    panels = []
    kinds = [("left", m, f"||x - F|| / ||x|| after round {m}") for m in range(n_rounds)]
    kinds += [("cosine", m, f"Cosine of correction {m} and its residual") for m in range(1, n_rounds)]
    kinds += [("gate", m, f"Mean gate of round {m}") for m in range(1, n_rounds)]
    for key, m, title in kinds:
        by_step = {at["step"]: by_layer(at["rounds"], m, key) for at in training}
        series = []
        for layer in sorted(set.intersection(*(set(values) for values in by_step.values()))):
            y = [values[layer] for values in by_step.values()]
            series.append(Series(name=f"layer {layer}", x=list(by_step), y=y))
        if series:
            panels.append(Panel(title=title, x_label="training step", y_label="", series=series))
    first, last = (by_layer(training[-1]["rounds"], m, "left") for m in (0, n_rounds - 1))
    fell = "; ".join(f"layer {layer} {first[layer]:.3f} to {last[layer]:.3f}" for layer in sorted(last))
    return Figure(
        name="dynamics",
        title="Do rounds fit their residual?",
        caption="Not in the paper, which calls a round a fit of the residual: on a few rows of validation text, how "
        f"much of x is left before and after the corrections. At the last step: {fell}.",
        panels=panels,
    )


def draw_specialisation(analysis: Analysis, called: Mapping[str, str]) -> Figure:
    found = analysis["specialisation"]
    groups = maps(analysis, called)
    series = []
    for i, (name, side, m) in enumerate(groups):
        offset, width = beside(len(groups) + 1, i)
        rows = [row["mean"] for row in found[side]["rows"] if row["round"] == m]
        values = [100 * sum(row[kind] for row in rows) / len(rows) for kind in KINDS]
        series.append(Series(name=name, x=[k + offset for k in range(len(KINDS))], y=values, style="bars", width=width))
    offset, width = beside(len(groups) + 1, len(groups))
    uniform = [100 * found["model"]["uniform"][kind] for kind in KINDS]
    series.append(
        Series(
            name="uniform attention", x=[k + offset for k in range(len(KINDS))], y=uniform, style="bars", width=width
        )
    )
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
                ticks={float(k): kind for k, kind in enumerate(KINDS)},
            )
        ],
    )


def draw_examples(analysis: Analysis, called: Mapping[str, str]) -> Figure | None:
    found = analysis["corrections"]
    if found is None:
        return None
    layer = min(1, len(analysis["layers"]) - 1)
    mine, theirs = called["model"], called["against"]
    chosen = [("gain", e) for e in found["gains"][:EXAMPLES]] + [("loss", e) for e in found["losses"][:EXAMPLES]]
    panels = []
    for kind, example in chosen:
        shown_maps = []
        for name, side, m in maps(analysis, called):
            layers = example[side]["attention"]
            if layer < len(layers) and m < len(layers[layer]):
                shown_maps.append((name, layers[layer][m]))
        words = [visible(word) for word in example["context"][-WINDOW:]]
        series = []
        for i, (name, weights) in enumerate(shown_maps):
            offset, width = beside(len(shown_maps), i)
            shown = weights[-WINDOW:]
            series.append(
                Series(name=name, x=[k + offset for k in range(len(shown))], y=shown, style="bars", width=width)
            )
        said, told = visible(example["model"]["top"][0][0]), visible(example["against"]["top"][0][0])
        panels.append(
            Panel(
                title=f"{kind}: {visible(example['target'])}; {theirs} {told} ({example['against']['loss']:.1f}), "
                f"{mine} {said} ({example['model']['loss']:.1f})",
                x_label="",
                y_label="attention",
                series=series,
                ticks={float(k): word for k, word in enumerate(words)},
            )
        )
    better = 100 * found["share_better"]
    gain = found["gain"]
    return Figure(
        name="examples",
        title=f"Where {mine} gains and where it loses most against {theirs}",
        caption="The paper's Figure 6 shows two gains; these are the two largest gains and the two largest losses, one "
        f"per sequence, with the attention of layer {layer} over the last {WINDOW} tokens, averaged over heads. "
        f"Titles: the target, then both predictions with their losses. Of {found['tokens']:,} tokens {better:.1f} % "
        f"are predicted better; the mean gain is {between(gain)} nats.",
        panels=panels,
    )


def between(found: Mapping[str, Any], digits: int = 4) -> str:
    """A mean with its interval; one observation has none."""
    mean = f"{found['mean']:.{digits}f}"
    return mean if found["n"] < 2 else f"{mean} [{found['low']:.{digits}f}, {found['high']:.{digits}f}]"


def visible(text: str) -> str:
    """A token with its blanks to be seen."""
    shown = text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    shown = "".join(c if c.isprintable() else "·" for c in shown)
    return shown if len(shown) <= 12 else shown[:11] + "…"
