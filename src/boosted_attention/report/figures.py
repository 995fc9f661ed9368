"""The paper's figures and those of the controls, from tables and results: each a function that gives a ``Figure``."""

from __future__ import annotations

from collections.abc import Callable

from boosted_attention.lab.experiments import budget, lm_pareto, rounds, scaling, temperature
from boosted_attention.lab.experiments.text import main_arms, read, short, tag
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.reproduce import Reproduction
from boosted_attention.report.chart import Figure, Panel, Series, beside, measured
from boosted_attention.statistics import estimate


def all_figures(found: Reproduction, preset: Preset) -> list[Figure]:
    """Every figure whose experiment is complete, the analysis' apart."""
    return [draw(found, preset) for name, draw in FIGURES.items() if name in found.tables]


def results(found: Reproduction, preset: Preset) -> Figure:
    table = found.tables["lm-main"]
    arms = list(main_arms(preset))
    panels = []
    for corpus in preset.text.corpora:
        cells = [table.rows[f"{arm}{tag(preset, corpus)}"][0] for arm in arms]
        series = [measured("ours, 95 % interval", range(len(arms)), [c.ours for c in cells if c is not None], "points")]
        paper = {i: c.paper for i, c in enumerate(cells) if c is not None and c.paper is not None}
        if paper:
            series.append(Series(name="paper", x=list(paper), y=list(paper.values()), style="points"))
        ticks = {float(i): arm for i, arm in enumerate(arms)}
        panels.append(
            Panel(x_label="", y_label="test perplexity", series=series, title=short(preset, corpus), ticks=ticks)
        )
    return Figure(
        name="results",
        title="Test perplexity",
        caption="The paper's Figure 2, left: lower is better; the axis does not begin at zero. "
        + scale(found, "lm-main"),
        panels=panels,
    )


def draw_rounds(found: Reproduction, preset: Preset) -> Figure:
    table = found.tables["rounds"]
    estimates = [table.quantities[f"accuracy | M={m}"] for m in rounds.ROUNDS]
    ours = measured("ours, 95 % interval", rounds.ROUNDS, estimates)
    paper = Series(name="paper, one run", x=rounds.ROUNDS, y=rounds.PAPER, style="dashes")
    panel = Panel(
        x_label="rounds M",
        y_label="accuracy (%)",
        series=[ours, paper],
        ticks={float(m): str(m) for m in rounds.ROUNDS},
        levels={"Bayes predictor": table.quantities["accuracy | Bayes"].mean},
    )
    return Figure(
        name="rounds",
        title=f"Retrieval by rounds, {preset.steps} steps",
        caption="The paper's Figure 2, right.",
        panels=[panel],
    )


def draw_budget(found: Reproduction, preset: Preset) -> Figure:
    table = found.tables["budget"]
    series = []
    for i, (row, runs) in enumerate(budget.arms(preset).items()):
        done = budget.ROUNDS[: len(runs)]
        estimates = [table.quantities[f"{row} | M={m}"] for m in done]
        series.append(measured(row, [m + 0.05 * (i - 2) for m in done], estimates))
    panel = Panel(
        x_label="rounds M",
        y_label="accuracy (%)",
        series=series,
        ticks={float(m): str(m) for m in budget.ROUNDS},
        levels={"Bayes predictor": table.quantities["Bayes | M=1"].mean},
    )
    caption = "Not in the paper: the same models with more training, or a higher learning rate."
    return Figure(name="budget", title="Rounds against training budget", caption=caption, panels=[panel])


def draw_scaling(found: Reproduction, preset: Preset) -> Figure:
    table = found.tables["scaling"]
    where = {float(j): f"{sigma}" for j, sigma in enumerate(scaling.SIGMAS)}
    panels = []
    for d, k in scaling.SIZES:
        series = []
        for i, (label, name) in enumerate((("M=1", "M=1"), ("M=2", "M=2"), ("Bayes", "Bayes predictor"))):
            offset, width = beside(3, i)
            estimates = [table.quantities[f"({d}, {k}) {label} | sigma={sigma}"] for sigma in scaling.SIGMAS]
            series.append(measured(name, [x + offset for x in where], estimates, "bars", width))
        panels.append(
            Panel(x_label="noise sigma", y_label="accuracy (%)", series=series, title=f"d={d}, K={k}", ticks=where)
        )
    series = []
    for i, (d, k) in enumerate(scaling.SIZES):
        offset, width = beside(3, i)
        gains = [table.quantities[f"gain ({d}, {k}) sigma={sigma}"] for sigma in scaling.SIGMAS]
        series.append(measured(f"gain, d={d}, K={k}", [x + offset for x in where], gains, "bars", width))
    panels.append(
        Panel(x_label="noise sigma", y_label="gain (points)", series=series, title="What M=2 adds to M=1", ticks=where)
    )
    return Figure(
        name="scaling",
        title=f"Retrieval by size and noise, {preset.steps} steps",
        caption="The paper's Figure 8, with sigma = 1.2 and the gains themselves.",
        panels=panels,
    )


def draw_temperature(found: Reproduction, preset: Preset) -> Figure:
    result = found.outcome.result(temperature.map_run(preset, (64, 16, 0.5)))
    panels = []
    for init in ("identity", "default"):
        series = []
        for j, steps in enumerate(temperature.STEPS):
            after = [row[j] for row in result[init]]
            means = [sum(seeds.values()) / len(seeds) if isinstance(seeds, dict) else seeds for seeds in after]
            series.append(Series(name=f"{steps} step{'s' * (steps > 1)}", x=temperature.BETAS, y=means))
        marks = {"critical": result["critical_beta"]} if init == "identity" else {}
        panels.append(
            Panel(
                x_label="inverse temperature",
                y_label="accuracy (%)",
                series=series,
                title=f"{init} projections",
                ticks={float(beta): f"{beta:g}" for beta in temperature.BETAS},
                log_x=True,
                marks=marks,
                levels={"Bayes predictor": result["bayes"], "chance": 100 / 16},
            )
        )
    return Figure(
        name="temperature",
        title="Iterated retrieval without training, d=64, K=16, sigma=0.5",
        caption="Not in the paper: the attention map applied again and again, by inverse temperature; the mark is "
        "where every pattern begins to have a fixed point of its own.",
        panels=panels,
    )


def draw_convergence(found: Reproduction, preset: Preset) -> Figure:
    panels = []
    for corpus in preset.text.corpora:
        results_of = read(preset, found.outcome.result, corpus, main_arms(preset))
        series, last = [], {}
        for arm, by_seed in results_of.items():
            curves = [result["curve"] for result in by_seed.values()]
            points = [(column[0][0], estimate([loss for _, loss in column])) for column in zip(*curves, strict=True)]
            points = points[len(points) > 3 :]  # the untrained model would flatten the rest
            series.append(measured(arm, [step for step, _ in points], [e for _, e in points]))
            last[arm] = points[-1][1].mean
        panels.append(
            Panel(
                x_label="step",
                y_label="validation loss (nats)",
                series=series,
                title=short(preset, corpus),
                levels={"where param-fair ends": last["param-fair"]},
            )
        )
    return Figure(
        name="convergence",
        title="Validation loss during training",
        caption=f"The paper's Figure 7, in nats, with intervals over seeds. {scale(found, 'lm-convergence')}",
        panels=panels,
    )


def draw_pareto(found: Reproduction, preset: Preset) -> Figure:
    table = found.tables["lm-pareto"]
    panels = []
    for corpus in preset.text.corpora:
        for column, title in ((1, "training FLOPs (1e12)"), (2, "step time (standard = 1)")):
            series = []
            for arm in lm_pareto.arms(preset):
                perplexity, *costs = table.rows[f"{arm}{tag(preset, corpus)}"]
                cost = costs[column - 1]
                assert perplexity is not None
                assert cost is not None
                series.append(measured(arm, [cost.ours.mean], [perplexity.ours], "points"))
            panels.append(Panel(x_label=title, y_label="test perplexity", series=series, title=short(preset, corpus)))
    return Figure(
        name="pareto",
        title="Perplexity against what it costs",
        caption=f"Not in the paper. {scale(found, 'lm-pareto')}",
        panels=panels,
    )


def scale(found: Reproduction, name: str) -> str:
    at = found.tables[name].scale
    return "At the paper's own size." if at is None else f"At the scale of {at}, not the paper's."


FIGURES: dict[str, Callable[[Reproduction, Preset], Figure]] = {
    "lm-main": results,
    "rounds": draw_rounds,
    "budget": draw_budget,
    "scaling": draw_scaling,
    "temperature": draw_temperature,
    "lm-convergence": draw_convergence,
    "lm-pareto": draw_pareto,
}
