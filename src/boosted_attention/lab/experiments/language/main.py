"""Table 3: standard, twicing, the wider standard model and boosted, on text."""

from __future__ import annotations

from dataclasses import replace

from boosted_attention.chart import Figure, Panel, Series, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import BOOSTED, FAIR, STANDARD, TWICING, main_arms
from boosted_attention.lab.experiments.language._shared import (
    OPENWEBTEXT,
    WIKITEXT,
    Points,
    Relative,
    add_arms,
    compare_arms,
    describe_matched,
    describe_places,
    described,
    located,
    on_first_text,
    one_after_the_other,
    read,
    relative,
    row_label,
    short,
    text_table,
    training_trials,
    validation,
)
from boosted_attention.lab.judging.claim import Claim, Role, claim
from boosted_attention.lab.judging.facts import BEATS_EQUAL_PARAMETERS, BEATS_STANDARD, BEATS_TWICING, EQUALS_WIDTH
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Table, over_seeds
from boosted_attention.lab.judging.verdicts import below, equal, number
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Language models (Table 3)"
PAPER = {
    WIKITEXT: {STANDARD: 72.2, TWICING: 69.6, FAIR: 69.0, BOOSTED: 67.9},
    OPENWEBTEXT: {STANDARD: 114.9, TWICING: 110.7, FAIR: 110.2, BOOSTED: 108.5},
}


def percent(a: str, b: str, text: str) -> float:
    """What the paper's table says of arm a against arm b, in percent."""
    return round(100 * (PAPER[text][a] / PAPER[text][b] - 1), 1)


PERPLEXITY = {arm: Quantity(arm) for arm in (STANDARD, TWICING, FAIR, BOOSTED)}
ON_VALIDATION = {arm: Quantity(f"{arm}, validation") for arm in PERPLEXITY}
OVER_STANDARD, OVER_TWICING, OVER_FAIR, TWICING_GAIN, FAIR_GAIN = RELATIVES = tuple(
    relative(a, b, percent(a, b, WIKITEXT))
    for a, b in ((BOOSTED, STANDARD), (BOOSTED, TWICING), (BOOSTED, FAIR), (TWICING, STANDARD), (FAIR, STANDARD))
)
POINTS_OVER_TWICING = Quantity("boosted - twicing, in points of perplexity")
MARGIN = 1.5  # percent: models whose perplexities lie nearer are equal


def trials(preset: Preset) -> list[Trial]:
    """The arms of comparisons that were named beforehand come first."""
    return one_after_the_other(preset, main_arms(preset), order=(BOOSTED, STANDARD, FAIR, TWICING))


def asked(preset: Preset) -> list[Trial]:
    """The first question, boosted against standard; every further arm is shown once it is whole."""
    arms = main_arms(preset)
    return training_trials(preset, {name: arms[name] for name in (BOOSTED, STANDARD)})


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    arms = main_arms(preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, arms)
        own = PAPER.get(corpus, {})
        add_arms(table, preset, corpus, found, {arm: q.with_paper(own.get(arm)) for arm, q in PERPLEXITY.items()})
        table.quantities |= {
            located(preset, corpus, ON_VALIDATION[arm]): over_seeds(validation(by_seed))
            for arm, by_seed in found.items()
        }
        points = Points(BOOSTED, TWICING, POINTS_OVER_TWICING)
        compare_arms(table, preset, corpus, found, [*(on_corpus(r, corpus) for r in RELATIVES), points])
        table.notes += described(preset, corpus, found, arms)
    table.notes.append(describe_matched(preset, {FAIR: arms[FAIR]}))
    return table


def on_corpus(r: Relative, corpus: str) -> Relative:
    """The comparison with what the paper says of it on this text; on others, what it says on WikiText-103."""
    return replace(r, quantity=r.quantity.with_paper(percent(r.a, r.b, corpus if corpus in PAPER else WIKITEXT)))


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    panels = []
    for corpus in preset.text.corpora:
        shown = [arm for arm in PERPLEXITY if row_label(preset, corpus, arm) in table.rows]
        cells = [cell for arm in shown if (cell := table.rows[row_label(preset, corpus, arm)][0]) is not None]
        if not cells:
            continue
        series = [measured("ours, 95 % interval", range(len(cells)), [cell.ours for cell in cells], "points")]
        paper = {i: cell.paper for i, cell in enumerate(cells) if cell.paper is not None}
        if paper:
            series.append(Series(name="paper", x=list(paper), y=list(paper.values()), style="points"))
        ticks = {float(i): arm for i, arm in enumerate(shown)}
        panels.append(
            Panel(x_label="", y_label="test perplexity", series=series, title=short(preset, corpus), ticks=ticks)
        )
    return Figure(
        name="results",
        title="Test perplexity",
        caption="The paper's Figure 2, left: lower is better; the axis does not begin at zero. "
        + describe_places(table),
        panels=panels,
    )


FACT_OF = {  # arm: fact that its perplexity stands beside
    STANDARD: BEATS_STANDARD,
    TWICING: BEATS_TWICING,
    FAIR: BEATS_EQUAL_PARAMETERS,
    BOOSTED: BEATS_STANDARD,
}
RUNS = 2  # seeds behind the paper's figures


def on_text(corpus: str, tagged: str) -> list[Claim]:
    """The figures of one of the paper's texts."""
    paper = PAPER[corpus]
    points = round(paper[BOOSTED] - paper[TWICING], 1)
    return [
        *(
            claim(
                f"lm-{tagged}-{arm}",
                FACT_OF[arm],
                quantity.on(corpus).with_paper(paper[arm]),
                number(rival=paper[BOOSTED if arm == STANDARD else STANDARD], runs=RUNS),
                f"The {arm} model reaches a test perplexity of {paper[arm]} on {corpus}.",
            )
            for arm, quantity in PERPLEXITY.items()
        ),
        *(
            claim(
                f"lm-{tagged}-over-{r.b}",
                FACT_OF[r.b],
                r.quantity.on(corpus).with_paper(percent(r.a, r.b, corpus)),
                number(runs=RUNS),
                f"Boosted attention's perplexity on {corpus} is {-percent(r.a, r.b, corpus)} % below that of {r.b}.",
                paper=f"{percent(r.a, r.b, corpus):+} %",
            )
            for r in (OVER_STANDARD, OVER_FAIR)
        ),
        claim(
            f"lm-{tagged}-over-twicing",
            BEATS_TWICING,
            POINTS_OVER_TWICING.on(corpus).with_paper(points),
            number(runs=RUNS),
            f"Boosted attention's perplexity on {corpus} is {-points} points below that of twicing.",
            paper=f"{points:+} points",
        ),
    ]


CLAIMS = [
    *(
        claim(
            f"lm-vs-{r.b}",
            fact,
            r.quantity,
            below(),
            f"Boosted attention has a lower perplexity than {said}.",
            paper=f"{percent(r.a, r.b, WIKITEXT):+} % and {percent(r.a, r.b, OPENWEBTEXT):+} %",
        )
        for r, fact, said in (
            (OVER_STANDARD, BEATS_STANDARD, "standard attention"),
            (OVER_FAIR, BEATS_EQUAL_PARAMETERS, "the wider standard model with as many parameters"),
            (OVER_TWICING, BEATS_TWICING, "twicing"),
        )
    ),
    claim(
        "lm-twicing-helps",
        BEATS_TWICING,
        TWICING_GAIN.quantity,
        below(),
        "Twicing has a lower perplexity than standard attention.",
        paper=f"{TWICING_GAIN.quantity.paper:+} %",
        role=Role.ASIDE,
    ),
    claim(
        "lm-equal-within-margin",
        EQUALS_WIDTH,
        OVER_FAIR.quantity,
        equal(0.0, MARGIN),
        f"Boosted attention has the perplexity of the wider standard model with as many parameters, within {MARGIN} %.",
        paper=f"{percent(BOOSTED, FAIR, WIKITEXT):+} % and {percent(BOOSTED, FAIR, OPENWEBTEXT):+} %",
    ),
    *on_text(WIKITEXT, "wt103"),
    *on_text(OPENWEBTEXT, "owt"),
]

EXPERIMENT = Experiment(
    name="lm-main",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=110,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    needed=on_first_text(asked),
    by_default=True,
)
