"""Figures of one analysis: what the rounds of a trained model do (the paper's Figures 3 to 6)."""

from __future__ import annotations

from typing import Any

from boosted_attention.analysis.entropy import by_layer
from boosted_attention.analysis.specialisation import KINDS
from boosted_attention.report.chart import Figure, Panel, Series, beside

Analysis = dict[str, Any]
EXAMPLES = 2  # of gains, and of losses
WINDOW = 14  # tokens of an example's context that fit a chart


def inside_figures(analysis: Analysis, against: str = "standard") -> list[Figure]:
    """Every figure there is data for; ``against`` is what the other model is called."""
    drawn = [
        draw_gates(analysis),
        draw_importance(analysis),
        draw_entropy(analysis, against),
        draw_hull(analysis),
        draw_dynamics(analysis),
        draw_specialisation(analysis, against),
        draw_examples(analysis, against),
    ]
    return [figure for figure in drawn if figure is not None]


def layer_ticks(analysis: Analysis) -> dict[float, str]:
    return {float(i): str(i) for i in range(len(analysis["layers"]))}


def boosted_rows(analysis: Analysis) -> list[dict[str, Any]]:
    return [row for row in analysis["gates"] if row["round"] == 1]


def draw_gates(analysis: Analysis) -> Figure | None:
    rows = boosted_rows(analysis)
    if not rows:
        return None

    def panel(title: str, x_label: str, y_label: str, series: list[Series], **more: Any) -> Panel:
        return Panel(title=title, x_label=x_label, y_label=y_label, series=series, **more)

    def name(row: dict[str, Any]) -> str:
        return f"layer {row['layer']}"

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
        title="Gates of the first correction",
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


def draw_entropy(analysis: Analysis, against: str) -> Figure:
    entropy = analysis["entropy"]
    groups = [] if entropy["against"] is None else [(against, entropy["against"], 0)]
    groups += [(f"round {m}", entropy["model"], m) for m in range(max(analysis["rounds"]))]
    spread, means = [], []
    for name, rows, m in groups:
        chosen = [row for row in rows if row["round"] == m]
        shares = [row["histogram"]["share"] for row in chosen]
        average = [100 * sum(column) / len(column) for column in zip(*shares, strict=True)]
        spread.append(Series(name=name, x=centres(chosen[0]["histogram"]), y=average))
        values = by_layer(rows, m)
        means.append(Series(name=name, x=list(values), y=list(values.values())))
    told = ", ".join(f"{s.name} {sum(s.y) / len(s.y):.2f}" for s in means)
    return Figure(
        name="entropy",
        title="Entropy of attention",
        caption=f"The paper's Figure 5. Mean over layers and heads, in nats: {told} (the paper, with "
        "contexts of 256 tokens: standard 2.71, round 0 3.34, round 1 2.55).",
        panels=[
            Panel(
                title="All layers and heads", x_label="entropy (nats)", y_label="share of queries (%)", series=spread,
                from_zero=True,
            ),
            Panel(title="By layer", x_label="layer", y_label="mean entropy (nats)", series=means,
                  ticks=layer_ticks(analysis)),
        ],
    )  # fmt: skip


HULL_PANELS = {"paper": "Up to 64 visible values, as in the paper", "beyond head_dim": "More values than dimensions"}


def draw_hull(analysis: Analysis) -> Figure | None:
    rows = analysis["hull"]["model"]["layers"]
    if not rows or "boosted" not in rows[0]["paper"]:
        return None
    panels = []
    for where, title in HULL_PANELS.items():
        if not all(where in row for row in rows):
            continue
        series = []
        kinds = list(rows[0][where])
        for i, kind in enumerate(kinds):
            described = [row[where][kind] for row in rows]
            series.append(
                Series(
                    name=kind, x=[row["layer"] + 0.12 * (i - (len(kinds) - 1) / 2) for row in rows],
                    y=[d["mean"] for d in described], low=[d["deciles"][1] for d in described],
                    high=[d["deciles"][9] for d in described], style="points",
                )
            )  # fmt: skip
        panels.append(
            Panel(title=title, x_label="layer", y_label="distance from the hull", series=series,
                  ticks=layer_ticks(analysis), from_zero=True)
        )  # fmt: skip
    outside = {kind: [f"{100 * row['paper'][kind]['outside']:.0f}" for row in rows] for kind in rows[0]["paper"]}
    shares = "; ".join(f"{kind} {', '.join(values)}" for kind, values in outside.items())
    return Figure(
        name="hull",
        title="Distance from the hull of round 0's values",
        caption="The paper's Figure 4 (means 0.88, 5.19, 4.25, 3.41) with its controls: means, and the range of the "
        f"middle 80 %. Outside, in percent by layer: {shares}. Few values in many dimensions have a hull without "
        "volume, which every generic change leaves: only the difference from the random correction says something.",
        panels=panels,
    )


def draw_dynamics(analysis: Analysis) -> Figure | None:
    training = analysis.get("training") or []
    rows = [row for row in analysis["dynamics"] if row["round"] == 1]
    if not rows or len(training) < 2:
        return None
    panels = []
    for key, m, title in (
        ("left", 1, "||x - F|| / ||x|| after round 1"),
        ("cosine", 1, "Cosine of correction and residual"),
        ("gate", 1, "Mean gate"),
    ):
        series = []
        for row in rows:
            values = {at["step"]: by_layer(at["rounds"], m, key)[row["layer"]] for at in training}
            series.append(Series(name=f"layer {row['layer']}", x=list(values), y=list(values.values())))
        panels.append(Panel(title=title, x_label="training step", y_label="", series=series))
    fell = "; ".join(
        f"layer {row['layer']}: {by_layer(analysis['dynamics'], 0, 'left')[row['layer']]:.3f} to {row['left']:.3f}"
        for row in rows
    )
    return Figure(
        name="dynamics",
        title="Do rounds fit their residual?",
        caption=f"Not in the paper, which calls a round a fit of the residual: what is left of x before and after the "
        f"correction, at the end of training: {fell}.",
        panels=panels,
    )


def draw_specialisation(analysis: Analysis, against: str) -> Figure:
    found = analysis["specialisation"]
    groups = [] if found["against"] is None else [(against, found["against"], 0)]
    groups += [(f"round {m}", found["model"], m) for m in range(max(analysis["rounds"]))]
    series = []
    for i, (name, study, m) in enumerate(groups):
        offset, width = beside(len(groups) + 1, i)
        rows = [row["mean"] for row in study["rows"] if row["round"] == m]
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
        "heads.",
        panels=[
            Panel(x_label="", y_label="share of attention (%)", series=series,
                  ticks={float(k): kind for k, kind in enumerate(KINDS)})
        ],
    )  # fmt: skip


def draw_examples(analysis: Analysis, against: str) -> Figure | None:
    found = analysis["corrections"]
    if found is None:
        return None
    layer = min(1, len(analysis["layers"]) - 1)
    chosen = [("gain", e) for e in found["gains"][:EXAMPLES]] + [("loss", e) for e in found["losses"][:EXAMPLES]]
    panels = []
    for kind, example in chosen:
        rounds = example["model"]["attention"][layer]
        maps = {against: example["against"]["attention"][min(layer, len(example["against"]["attention"]) - 1)][0]}
        maps |= {f"round {m}": weights for m, weights in enumerate(rounds)}
        words = [visible(word) for word in example["context"][-WINDOW:]]
        series = []
        for i, (name, weights) in enumerate(maps.items()):
            offset, width = beside(len(maps), i)
            shown = weights[-WINDOW:]
            series.append(
                Series(name=name, x=[k + offset for k in range(len(shown))], y=shown, style="bars", width=width)
            )
        said, told = visible(example["model"]["top"][0][0]), visible(example["against"]["top"][0][0])
        panels.append(
            Panel(
                title=f"{kind}: {visible(example['target'])}; {against} {told} ({example['against']['loss']:.1f}), "
                f"boosted {said} ({example['model']['loss']:.1f})",
                x_label="", y_label="attention", series=series,
                ticks={float(k): word for k, word in enumerate(words)},
            )
        )  # fmt: skip
    better = 100 * found["share_better"]
    gain = found["gain"]
    return Figure(
        name="examples",
        title="Where boosting gains and where it loses most",
        caption=f"The paper's Figure 6 shows two gains; these are the largest gains and the largest losses, of layer "
        f"{layer}, over heads. Titles: the target, then both predictions with their losses. Of {found['tokens']:,} "
        f"tokens {better:.1f} % are predicted better, by {gain['mean']:.3f} nats in the mean [{gain['low']:.3f}, "
        f"{gain['high']:.3f}].",
        panels=panels,
    )


def visible(text: str) -> str:
    """A token with its blanks to be seen."""
    shown = text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    shown = "".join(c if c.isprintable() else "·" for c in shown)
    return shown if len(shown) <= 12 else shown[:11] + "…"
