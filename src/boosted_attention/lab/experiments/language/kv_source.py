"""Appendix D: where a correction's keys and values come from."""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._shared import (
    BOOSTED,
    PLAIN,
    WIKITEXT,
    add_arms,
    compare,
    located,
    perplexities,
    read,
    text_table,
    training_trials,
    validation,
)
from boosted_attention.lab.experiments.language._trials import Arm
from boosted_attention.lab.experiments.language.main import PAPER as MAIN
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import KV_SOURCE
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity, difference
from boosted_attention.lab.judging.table import Paired, Table, over_seeds
from boosted_attention.lab.judging.verdicts import below, number
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Keys and values of the correction (Appendix D)"
RESIDUAL, INPUT, SHARED = "residual", "input", "shared"
ARMS: dict[str, Arm] = {
    RESIDUAL: PLAIN[BOOSTED],
    INPUT: {"attention": "boosted-input"},
    SHARED: {"attention": "boosted-shared"},
}
PERPLEXITY = {
    RESIDUAL: Quantity("perplexity, residual", MAIN[WIKITEXT][BOOSTED]),
    INPUT: Quantity("perplexity, input", 69.3),
}
PAPER_VALIDATION = {RESIDUAL: 68.1, INPUT: 69.5}
VALIDATION = {arm: Quantity(f"validation perplexity, {arm}", paper) for arm, paper in PAPER_VALIDATION.items()}
OVER_INPUT = difference(PERPLEXITY[RESIDUAL], PERPLEXITY[INPUT], "residual - input")
OVER_SHARED = Quantity("residual - shared")


def trials(preset: Preset) -> list[Trial]:
    return training_trials(preset, ARMS)


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, unit="points")
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, ARMS)
        own = {arm: q if corpus == WIKITEXT else q.with_paper(None) for arm, q in PERPLEXITY.items()}
        add_arms(table, preset, corpus, found, own)
        table.quantities |= {
            located(preset, corpus, q): over_seeds(validation(found[arm])) for arm, q in VALIDATION.items()
        }
        values = perplexities(found)
        pairs = [
            Paired(OVER_INPUT, values[RESIDUAL], values[INPUT]),
            Paired(OVER_SHARED, values[RESIDUAL], values[SHARED]),
        ]
        compare(table, preset, corpus, pairs)
    return table


CLAIMS = [
    claim(
        "lm-kv-residual",
        KV_SOURCE,
        OVER_INPUT,
        below(),
        "Keys and values from the residual have a lower perplexity than keys and values from the input.",
        paper=f"{OVER_INPUT.paper} points",
    ),
    *(
        claim(f"lm-kv-{tagged}", KV_SOURCE, quantity.on(WIKITEXT), number(rival=rival), f"{said} is {quantity.paper}.")
        for tagged, quantity, rival, said in (
            ("size", OVER_INPUT, 0.0, "The difference in points of perplexity"),
            ("input", PERPLEXITY[INPUT], MAIN[WIKITEXT][BOOSTED], "With K/V from the input the test perplexity"),
            (
                "residual-val",
                VALIDATION[RESIDUAL],
                PAPER_VALIDATION[INPUT],
                "With K/V from the residual the validation perplexity",
            ),
            (
                "input-val",
                VALIDATION[INPUT],
                PAPER_VALIDATION[RESIDUAL],
                "With K/V from the input the validation perplexity",
            ),
        )
    ),
]

EXPERIMENT = Experiment(
    name="lm-kv-source", title=TITLE, kind=Kind.LANGUAGE, order=130, trials=trials, collect=collect, claims=CLAIMS
)
