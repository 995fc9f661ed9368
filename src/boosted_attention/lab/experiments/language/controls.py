"""Is it the residual, or more attention, more parameters, more compute?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._shared import (
    BOOSTED,
    FAIR,
    PLAIN,
    STANDARD,
    TWICING,
    Found,
    add_arms,
    compare,
    describe_matched,
    located,
    main_arms,
    matched_arm,
    perplexities,
    read,
    relative,
    require_alike,
    short,
    text_table,
    training_trials,
)
from boosted_attention.lab.experiments.language._trials import Arm, derived_trial, timing_trial
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import BEATS_EQUAL_PARAMETERS, RESIDUAL_IS_KEY
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import TimeMatched
from boosted_attention.records import from_json

TITLE = "Controls: is it the residual?"
PARALLEL, EQUAL_FLOPS, DEEPER, TIMED = "parallel", "FLOP-matched width", "one more layer", "time-matched width"
SEQUENTIAL, MORE_HEADS, LATE_TWICING = "sequential", "twice the heads", "twicing in the last layers"
OTHER_FORMS = ("differential", "differential-v2", "gated", "boosted-differential")
RIVALS = (
    STANDARD,
    TWICING,
    FAIR,
    PARALLEL,
    SEQUENTIAL,
    EQUAL_FLOPS,
    DEEPER,
    MORE_HEADS,
    LATE_TWICING,
    *OTHER_FORMS,
    TIMED,
)
OVER = {rival: relative(BOOSTED, rival) for rival in RIVALS}


def arms(preset: Preset) -> dict[str, Arm]:
    """Every arm whose configuration is known beforehand."""
    model = preset.text.configuration().model
    return {
        **main_arms(preset),
        PARALLEL: {"attention": "parallel"},
        SEQUENTIAL: {"attention": "sequential"},
        EQUAL_FLOPS: matched_arm(preset, PLAIN[BOOSTED], "flops"),
        DEEPER: {**PLAIN[STANDARD], "n_layers": model.n_layers + 1},
        MORE_HEADS: {**PLAIN[STANDARD], "n_heads": 2 * model.n_heads},
        LATE_TWICING: {**PLAIN[TWICING], "boosted_layers": f"last:{max(1, model.n_layers // 2)}"},
        **{form: {"attention": form} for form in OTHER_FORMS},
    }


def timings(preset: Preset) -> Trial:
    """Step times of the boosted model, then of standard models by width, in steps of two heads' worth."""
    model = preset.text.configuration().model
    widths = range(model.d_model, 2 * model.d_model + 1, 2 * model.n_heads)
    standard = {str(d): {**PLAIN[STANDARD], "d_model": d} for d in widths}
    return timing_trial(preset, {BOOSTED: PLAIN[BOOSTED], **standard}, "widths")


def timed(preset: Preset, corpus: str, seed: int) -> Trial:
    return derived_trial(preset, corpus, seed, TIMED, "language.train-time-matched", timings(preset), {})


def trials(preset: Preset) -> list[Trial]:
    matched = [timed(preset, corpus, seed) for corpus in preset.text.corpora for seed in preset.text.seeds]
    return [*training_trials(preset, arms(preset)), timings(preset), *matched]


def needed(preset: Preset) -> list[Trial]:
    """The question of the title; every further arm is shown as it is there."""
    return training_trials(preset, {name: arms(preset)[name] for name in (*main_arms(preset), PARALLEL)})


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    matched = {name: arms(preset)[name] for name in (FAIR, EQUAL_FLOPS)}
    table.notes.append(describe_matched(preset, matched))
    for corpus in preset.text.corpora:
        found: Found = {}
        for name, arm in arms(preset).items():
            with suppress(KeyError):  # not there yet
                found |= read(preset, results, corpus, {name: arm})
        with suppress(KeyError):
            in_time = {seed: from_json(TimeMatched, results(timed(preset, corpus, seed))) for seed in preset.text.seeds}
            table.notes.append(f"{short(preset, corpus)}: {describe_timed(in_time)}.")
            trained = {seed: result.trained for seed, result in in_time.items() if result.trained is not None}
            if len(trained) == len(in_time):
                found[TIMED] = trained
        require_alike(found, corpus)
        add_arms(table, preset, corpus, found)
        values = perplexities(found)
        compare(table, preset, corpus, [OVER[name].of(values) for name in values if name != BOOSTED])
        for compared in OVER.values():
            quantity = located(preset, corpus, compared.quantity)
            if quantity not in table.quantities:
                table.missing[quantity] = f"{compared.b} was not run"
    return table


def describe_timed(by_seed: Mapping[int, TimeMatched]) -> str:
    """What the time-matched model is; all seeds build on one timing trial."""
    result = next(iter(by_seed.values()))
    width, ratio = result.measured.width, f"{result.measured.step_time:.2f}"
    if result.trained is None:
        return f"no standard model takes the time of a boosted step (the nearest, d_model={width}, takes {ratio})"
    return f"the time-matched standard model has d_model={width} and takes {ratio} of the time of a boosted step"


CLAIMS = [
    claim(
        "lm-residual",
        RESIDUAL_IS_KEY,
        OVER[PARALLEL].quantity,
        below(),
        "A parallel second attention on x, without the residual, has a higher perplexity.",
        section="6.1",
        paper="not tested",
        role=Role.CONTROL,
    ),
    claim(
        "lm-flops",
        BEATS_EQUAL_PARAMETERS,
        OVER[EQUAL_FLOPS].quantity,
        below(),
        "A wider standard model with as many FLOPs has a higher perplexity.",
        paper="not tested",
        role=Role.CONTROL,
    ),
]

EXPERIMENT = Experiment(
    name="lm-controls",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=160,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    needed=needed,
)
