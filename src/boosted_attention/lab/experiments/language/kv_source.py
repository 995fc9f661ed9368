"""Appendix D: where a correction's keys and values come from."""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment, Kind, Results
from boosted_attention.lab.experiments.language._shared import (
    BOOSTED,
    PLAIN,
    WIKITEXT,
    add_arms,
    compare,
    is_first,
    perplexities,
    read,
    text_table,
    training_trials,
    validation,
)
from boosted_attention.lab.experiments.language._trials import Arm
from boosted_attention.lab.experiments.language.main import PAPER as MAIN
from boosted_attention.lab.judging.claim import claim
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
VALIDATION = {
    RESIDUAL: Quantity("validation perplexity, residual", 68.1),
    INPUT: Quantity("validation perplexity, input", 69.5),
}
OVER_INPUT = difference(PERPLEXITY[RESIDUAL], PERPLEXITY[INPUT], "residual - input")
OVER_SHARED = Quantity("residual - shared")


def trials(preset: Preset) -> list[Trial]:
    return training_trials(preset, ARMS)


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, unit="points")
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, ARMS)
        own = {arm: q if corpus == WIKITEXT else Quantity(q.name) for arm, q in PERPLEXITY.items()}
        add_arms(table, preset, corpus, found, own)
        if is_first(preset, corpus):
            table.quantities |= {q: over_seeds(validation(found[arm])) for arm, q in VALIDATION.items()}
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
        "App. D",
        OVER_INPUT,
        below(),
        "Keys and values from the residual beat keys and values from the input.",
        paper=f"{OVER_INPUT.paper} points",
    ),
    claim(
        "lm-kv-input",
        "App. D",
        PERPLEXITY[INPUT],
        number(),
        f"With keys and values from the input the test perplexity is {PERPLEXITY[INPUT].paper}.",
    ),
    claim(
        "lm-kv-residual-val",
        "App. D",
        VALIDATION[RESIDUAL],
        number(),
        f"With keys and values from the residual the validation perplexity is {VALIDATION[RESIDUAL].paper}.",
    ),
    claim(
        "lm-kv-input-val",
        "App. D",
        VALIDATION[INPUT],
        number(),
        f"With keys and values from the input the validation perplexity is {VALIDATION[INPUT].paper}.",
    ),
]

EXPERIMENT = Experiment(
    name="lm-kv-source", title=TITLE, kind=Kind.LANGUAGE, order=130, trials=trials, collect=collect, claims=CLAIMS
)
