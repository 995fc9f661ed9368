"""Table 4: the main arms under Pre-LN and Post-LN."""

from __future__ import annotations

from collections.abc import Mapping

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import BOOSTED, FAIR, POST, STANDARD, Arm, all_arms
from boosted_attention.lab.experiments.language._shared import (
    WIKITEXT,
    add_arms,
    compare_arms,
    described,
    on_first_text,
    read,
    relative,
    text_table,
    training_trials,
)
from boosted_attention.lab.experiments.language.main import PAPER as MAIN
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import NEEDS_PRE_LN
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.judging.verdicts import above, below, number
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Placement of the norms (Table 4)"
ARMS = (STANDARD, FAIR, BOOSTED)
PAPER = {STANDARD: 77.2, FAIR: 71.8, BOOSTED: 84.6}  # under Post-LN, on WikiText-103
PERPLEXITY = {arm: Quantity(f"perplexity, {POST[arm]}", PAPER[arm]) for arm in ARMS}


def percent_over_standard(arm: str, paper: Mapping[str, float]) -> float:
    """What the paper's perplexities say of an arm against standard, in percent."""
    return round(100 * (paper[arm] / paper[STANDARD] - 1), 1)


PRE = MAIN[WIKITEXT]
BOOSTED_PRE = relative(BOOSTED, STANDARD, percent_over_standard(BOOSTED, PRE), "boosted - standard, pre")
BOOSTED_POST = relative(
    POST[BOOSTED], POST[STANDARD], percent_over_standard(BOOSTED, PAPER), "boosted - standard, post"
)
FAIR_PRE = relative(FAIR, STANDARD, percent_over_standard(FAIR, PRE), "param-fair - standard, pre")
FAIR_POST = relative(POST[FAIR], POST[STANDARD], percent_over_standard(FAIR, PAPER), "param-fair - standard, post")
RELATIVES = (BOOSTED_PRE, BOOSTED_POST, FAIR_PRE, FAIR_POST)


def arms(preset: Preset) -> dict[str, Arm]:
    """The arms without twicing, before and after the norms have moved."""
    known = all_arms(preset)
    return {name: known[name] for name in (*ARMS, *POST.values())}


def trials(preset: Preset) -> list[Trial]:
    return training_trials(preset, arms(preset))


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, arms(preset))
        own = {POST[arm]: q if corpus == WIKITEXT else q.with_paper(None) for arm, q in PERPLEXITY.items()}
        add_arms(table, preset, corpus, found, own)
        compare_arms(table, preset, corpus, found, RELATIVES)
        table.notes += described(preset, corpus, found, arms(preset))
    return table


CALLED = {STANDARD: "standard", FAIR: "wider", BOOSTED: "boosted"}
CLAIMS = [
    claim(
        "lm-post-reverses",
        NEEDS_PRE_LN,
        BOOSTED_POST.quantity,
        above(),
        "Under Post-LN boosting makes perplexity worse.",
        paper=f"{BOOSTED_POST.quantity.paper:+} %",
    ),
    claim(
        "lm-pre-helps",
        NEEDS_PRE_LN,
        BOOSTED_PRE.quantity,
        below(),
        "Under Pre-LN boosting improves perplexity.",
        paper=f"{BOOSTED_PRE.quantity.paper:+} %",
    ),
    claim(
        "lm-post-wide-helps",
        NEEDS_PRE_LN,
        FAIR_POST.quantity,
        below(),
        "Under Post-LN the wider model still improves.",
        paper=f"{FAIR_POST.quantity.paper:+} %",
    ),
    claim(
        "lm-pre-wide-helps",
        NEEDS_PRE_LN,
        FAIR_PRE.quantity,
        below(),
        "Under Pre-LN the wider model improves.",
        paper=f"{FAIR_PRE.quantity.paper:+} %",
    ),
    *(
        claim(
            f"lm-post-{tagged}",
            NEEDS_PRE_LN,
            PERPLEXITY[arm].on(WIKITEXT),
            number(rival=PAPER[BOOSTED if arm == STANDARD else STANDARD]),
            f"Under Post-LN the {CALLED[arm]} model reaches {PAPER[arm]}.",
        )
        for arm, tagged in ((STANDARD, "standard"), (FAIR, "wide"), (BOOSTED, "boosted"))
    ),
    *(
        claim(
            f"lm-{tagged}",
            NEEDS_PRE_LN,
            r.quantity.on(WIKITEXT),
            number(runs=runs),
            f"{said} changes perplexity by {r.quantity.paper:+} %.",
            paper=f"{r.quantity.paper:+} %",
        )
        for r, tagged, runs, said in (
            (BOOSTED_POST, "post-reverses-size", 1, "Boosting under Post-LN"),
            (FAIR_POST, "post-wide-size", 1, "Width under Post-LN"),
            (FAIR_PRE, "pre-wide-size", 2, "Width under Pre-LN"),
        )
    ),
]

EXPERIMENT = Experiment(
    name="lm-normalization",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=120,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    needed=on_first_text(trials),
)
