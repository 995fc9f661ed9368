"""Table 3: standard, twicing, the wider standard model and boosted, on text."""

from __future__ import annotations

from boosted_attention.chart import Figure, Panel, Series, measured
from boosted_attention.lab.experiment import Experiment, Kind, Results
from boosted_attention.lab.experiments.language._shared import (
    BOOSTED,
    FAIR,
    OPENWEBTEXT,
    STANDARD,
    THE_PAPERS,
    TWICING,
    WIKITEXT,
    add_arms,
    compare,
    describe_matched,
    describe_scale,
    located,
    main_arms,
    perplexities,
    read,
    relative,
    row_label,
    short,
    stands_for,
    text_table,
    training_trials,
)
from boosted_attention.lab.judging.claim import Claim, claim
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Paired, Table, exactly, over_seeds
from boosted_attention.lab.judging.verdicts import below, number
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.train.recipes import find_recipe

TITLE = "Language models (Table 3)"
PAPER = {
    WIKITEXT: {STANDARD: 72.2, TWICING: 69.6, FAIR: 69.0, BOOSTED: 67.9},
    OPENWEBTEXT: {STANDARD: 114.9, TWICING: 110.7, FAIR: 110.2, BOOSTED: 108.5},
}
# What the paper says in percent, and in points of perplexity, follows from its table.
PAPER_REDUCTION = {text: round(100 * (arms[BOOSTED] / arms[STANDARD] - 1), 1) for text, arms in PAPER.items()}
PAPER_OVER_TWICING = {text: round(arms[BOOSTED] - arms[TWICING], 1) for text, arms in PAPER.items()}

PERPLEXITY = {arm: Quantity(arm) for arm in (STANDARD, TWICING, FAIR, BOOSTED)}
OVER_STANDARD = relative(BOOSTED, STANDARD)
OVER_TWICING = relative(BOOSTED, TWICING)
OVER_FAIR = relative(BOOSTED, FAIR)
TWICING_GAIN = relative(TWICING, STANDARD)
FAIR_GAIN = relative(FAIR, STANDARD)
RELATIVES = (OVER_STANDARD, OVER_TWICING, OVER_FAIR, TWICING_GAIN, FAIR_GAIN)
MORE_PARAMETERS = Quantity("parameters, boosted - standard", 18.0)


def trials(preset: Preset) -> list[Trial]:
    return training_trials(preset, main_arms(preset))


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    stands = stands_for(preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, main_arms(preset))
        paper = PAPER.get(stands.get(corpus, ""), {})
        own = PAPER.get(corpus, {})
        add_arms(table, preset, corpus, found, {arm: q.on("", own.get(arm)) for arm, q in PERPLEXITY.items()})
        values = perplexities(found)
        pairs = [with_paper(r.of(values), r.a, r.b, paper) for r in RELATIVES]
        compare(table, preset, corpus, pairs)
        if corpus in stands:  # under the names the claims use
            theirs = stands[corpus]
            for arm, quantity in PERPLEXITY.items():
                table.quantities[quantity.on(theirs)] = over_seeds(values[arm])
            for r in RELATIVES:
                here = located(preset, corpus, r.quantity)
                table.quantities[r.quantity.on(theirs)] = table.quantities[here]
    for theirs in set(THE_PAPERS) - set(stands.values()):
        for quantity in (*PERPLEXITY.values(), *(r.quantity for r in RELATIVES)):
            table.missing[quantity.on(theirs)] = f"no text was run for {theirs}"
    boosted, standard = (find_recipe(f"paper-small-{name}").model.num_params() for name in (BOOSTED, STANDARD))
    table.quantities[MORE_PARAMETERS] = exactly(100 * (boosted / standard - 1))  # known without training
    table.at_full_size.add(MORE_PARAMETERS)
    table.notes.append(describe_matched(preset, {FAIR: main_arms(preset)[FAIR]}))
    return table


def with_paper(pair: Paired, a: str, b: str, paper: dict[str, float]) -> Paired:
    """The comparison with what the paper's perplexities say of it."""
    theirs = 100 * (paper[a] / paper[b] - 1) if paper else None
    return Paired(Quantity(pair.quantity.name, theirs), pair.a, pair.b)


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    arms = list(PERPLEXITY)
    panels = []
    for corpus in preset.text.corpora:
        cells = [cell for arm in arms if (cell := table.rows[row_label(preset, corpus, arm)][0]) is not None]
        series = [measured("ours, 95 % interval", range(len(arms)), [cell.ours for cell in cells], "points")]
        paper = {i: cell.paper for i, cell in enumerate(cells) if cell.paper is not None}
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
        + describe_scale(table),
        panels=panels,
    )


def on_text(corpus: str, tagged: str) -> list[Claim]:
    """The claims about one of the paper's texts."""
    paper, reduction = PAPER[corpus], PAPER_REDUCTION[corpus]
    rivals = {
        STANDARD: (OVER_STANDARD, f"{reduction} %"),
        FAIR: (OVER_FAIR, f"{paper[FAIR]} to {paper[BOOSTED]}"),
        TWICING: (OVER_TWICING, f"{PAPER_OVER_TWICING[corpus]} points"),
    }
    return [
        *(
            claim(
                f"lm-{tagged}-{arm}",
                "6.1",
                quantity.on(corpus, paper[arm]),
                number(),
                f"The {arm} model reaches a test perplexity of {paper[arm]} on {corpus}.",
            )
            for arm, quantity in PERPLEXITY.items()
        ),
        *(
            claim(
                f"lm-{tagged}-vs-{rival}",
                "6.1",
                compared.quantity.on(corpus),
                below(),
                f"Boosted attention has a lower perplexity than {rival} on {corpus}.",
                paper=shown,
            )
            for rival, (compared, shown) in rivals.items()
        ),
        claim(
            f"lm-{tagged}-size",
            "6.1",
            OVER_STANDARD.quantity.on(corpus, reduction),
            number(),
            f"The reduction against standard attention on {corpus} is {-reduction} %.",
            paper=f"{reduction:+} %",
        ),
        claim(
            f"lm-{tagged}-twicing-helps",
            "6.1",
            TWICING_GAIN.quantity.on(corpus),
            below(),
            f"Twicing has a lower perplexity than standard attention on {corpus}.",
            paper="lower",
        ),
    ]


CLAIMS = [
    *on_text(WIKITEXT, "wt103"),
    *on_text(OPENWEBTEXT, "owt"),
    claim(
        "lm-params",
        "3.1",
        MORE_PARAMETERS,
        number(1.0),
        f"Two rounds add about {MORE_PARAMETERS.paper:.0f} % parameters to the model.",
        paper=f"{MORE_PARAMETERS.paper:+.0f} %",
    ),
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
    by_default=True,
)
