"""Appendix D: where a correction's keys and values come from."""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import BOOSTED, INPUT, PLAIN, SHARED, Arm
from boosted_attention.lab.experiments.language._shared import (
    WIKITEXT,
    Points,
    add_arms,
    compare_arms,
    described,
    located,
    on_first_text,
    read,
    text_table,
    training_trials,
    validation,
)
from boosted_attention.lab.experiments.language.main import PAPER as MAIN
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import KV_SOURCE
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity, difference
from boosted_attention.lab.judging.table import Table, over_seeds
from boosted_attention.lab.judging.verdicts import below, number
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Keys and values of the correction (Appendix D)"
RESIDUAL, FROM_INPUT, OF_ROUND_0 = "residual", "input", "shared"
ARMS: dict[str, Arm] = {RESIDUAL: PLAIN[BOOSTED], FROM_INPUT: PLAIN[INPUT], OF_ROUND_0: PLAIN[SHARED]}
PERPLEXITY = {
    RESIDUAL: Quantity("perplexity, residual", MAIN[WIKITEXT][BOOSTED]),
    FROM_INPUT: Quantity("perplexity, input", 69.3),
}
PAPER_VALIDATION = {RESIDUAL: 68.1, FROM_INPUT: 69.5}
VALIDATION = {arm: Quantity(f"validation perplexity, {arm}", paper) for arm, paper in PAPER_VALIDATION.items()}
OVER_INPUT = difference(PERPLEXITY[RESIDUAL], PERPLEXITY[FROM_INPUT], "residual - input")
OVER_SHARED = Quantity("residual - shared")
COMPARED = (Points(RESIDUAL, FROM_INPUT, OVER_INPUT), Points(RESIDUAL, OF_ROUND_0, OVER_SHARED))


def trials(preset: Preset) -> list[Trial]:
    return training_trials(preset, ARMS)


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, unit="points")
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, ARMS)
        own = {arm: q if corpus == WIKITEXT else q.with_paper(None) for arm, q in PERPLEXITY.items()}
        add_arms(table, preset, corpus, found, own)
        for arm, quantity in VALIDATION.items():
            if arm in found:
                table.quantities[located(preset, corpus, quantity)] = over_seeds(validation(found[arm]))
            else:
                reasons, why = (table.failed, "diverged") if arm in found.diverged else (table.missing, "not run")
                reasons[located(preset, corpus, quantity)] = why
        compare_arms(table, preset, corpus, found, COMPARED)
        table.notes += described(preset, corpus, found, ARMS)
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
    # Keys and values from the residual are the paper's main model, the mean of two runs. How many the other arm has it
    # does not say: one is assumed, and so for the difference.
    *(
        claim(f"lm-kv-{tagged}", KV_SOURCE, quantity.on(WIKITEXT), rule, f"{said} is {quantity.paper}.")
        for tagged, quantity, rule, said in (
            ("size", OVER_INPUT, number(), "The difference in points of perplexity"),
            (
                "input",
                PERPLEXITY[FROM_INPUT],
                number(rival=MAIN[WIKITEXT][BOOSTED]),
                "With K/V from the input the test perplexity",
            ),
            (
                "residual-val",
                VALIDATION[RESIDUAL],
                number(rival=PAPER_VALIDATION[FROM_INPUT], runs=2),
                "With K/V from the residual the validation perplexity",
            ),
            (
                "input-val",
                VALIDATION[FROM_INPUT],
                number(rival=PAPER_VALIDATION[RESIDUAL]),
                "With K/V from the input the validation perplexity",
            ),
        )
    ),
]

EXPERIMENT = Experiment(
    name="lm-kv-source",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=130,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    needed=on_first_text(trials),
)
