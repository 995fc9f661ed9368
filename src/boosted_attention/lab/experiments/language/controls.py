"""Is it the residual, or more attention, more parameters, more compute?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from boosted_attention.chart import Figure, Panel, Series, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import (
    BOOSTED,
    DEEPER,
    DIFFERENTIAL,
    EQUAL_FLOPS,
    FAIR,
    GATED,
    LATE_TWICING,
    MORE_HEADS,
    OTHER_FORMS,
    PARALLEL,
    PLAIN,
    SEQUENTIAL,
    SHARED,
    STANDARD,
    TWICING,
    Arm,
    all_arms,
    main_arms,
    rate_of,
    seeds_named,
)
from boosted_attention.lab.experiments.language._shared import (
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
    require_alike,
    short,
    text_table,
    training_trials,
)
from boosted_attention.lab.experiments.language._trials import derived_trial, timing_trial
from boosted_attention.lab.experiments.language.main import OVER_FAIR, OVER_STANDARD, OVER_TWICING
from boosted_attention.lab.experiments.language.sweep import at_one_rate
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import BEATS_EQUAL_PARAMETERS, COMBINES, RESIDUAL_IS_KEY
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.judging.verdicts import above, below
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import Diverged, TimeMatched, timed_outcome_of

TITLE = "Controls: is it the residual?"
TIMED = "time-matched width"
RIVALS = (
    STANDARD,
    TWICING,
    FAIR,
    PARALLEL,
    EQUAL_FLOPS,
    DEEPER,
    SHARED,
    SEQUENTIAL,
    MORE_HEADS,
    LATE_TWICING,
    *OTHER_FORMS,
    TIMED,
)
SAID = {r.b: r.quantity.paper for r in (OVER_STANDARD, OVER_TWICING, OVER_FAIR)}  # of the paper, on WikiText-103
OVER = {rival: relative(BOOSTED, rival, SAID.get(rival)) for rival in RIVALS}
COMBINED = relative("boosted-differential", DIFFERENTIAL)
ALONE = [relative(rival, STANDARD) for rival in (DEEPER, GATED)]  # what rivals without a second round bring


def arms(preset: Preset) -> dict[str, Arm]:
    """Every arm whose configuration is known beforehand."""
    known = all_arms(preset)
    return {name: known[name] for name in (BOOSTED, *RIVALS) if name != TIMED}


def timings(preset: Preset) -> Trial:
    """Step times of the boosted model, then of standard models by width, in steps of two heads' worth."""
    model = preset.text.configuration().model
    widths = range(model.d_model, 2 * model.d_model + 1, 2 * model.n_heads)
    standard = {str(d): {**PLAIN[STANDARD], "d_model": d} for d in widths}
    return timing_trial(preset, {BOOSTED: PLAIN[BOOSTED], **standard}, "widths")


def timed(preset: Preset, corpus: str, seed: int) -> Trial:
    after, rate = timings(preset), rate_of(preset, PLAIN[STANDARD])
    return derived_trial(preset, corpus, seed, TIMED, "language.train-time-matched", after, {}, rate)


def timed_seeds(preset: Preset, corpus: str) -> tuple[int, ...]:
    """The seeds of the time-matched model."""
    return seeds_named(preset, corpus, TIMED) if preset.text.arms else preset.text.seeds


def trials(preset: Preset) -> list[Trial]:
    known = arms(preset)
    trained = one_after_the_other(preset, known, order=tuple(known))
    matched = [
        replace(timed(preset, corpus, seed), turn=len(RIVALS))
        for corpus in preset.text.corpora
        for seed in timed_seeds(preset, corpus)
    ]
    return [*trained, *([timings(preset)] if matched else []), *matched]


def asked(preset: Preset) -> list[Trial]:
    """The question of the title; every further arm is shown as it is there."""
    return training_trials(preset, {name: arms(preset)[name] for name in (*main_arms(preset), PARALLEL)})


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    matched = {name: arms(preset)[name] for name in (FAIR, EQUAL_FLOPS)}
    table.notes.append(describe_matched(preset, matched))
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, arms(preset))
        table.notes += described(preset, corpus, found, arms(preset)) + at_one_rate(preset, results, corpus)
        with suppress(KeyError):
            outcomes = {s: timed_outcome_of(results(timed(preset, corpus, s))) for s in timed_seeds(preset, corpus)}
            diverged = {seed: one for seed, one in outcomes.items() if isinstance(one, Diverged)}
            if diverged:
                found.diverged[TIMED] = diverged
            in_time = {seed: one for seed, one in outcomes.items() if isinstance(one, TimeMatched)}
            if in_time:
                table.notes.append(f"{short(preset, corpus)}: {describe_timed(in_time)}.")
            trained = {seed: result.trained for seed, result in in_time.items() if result.trained is not None}
            if trained and len(trained) == len(outcomes):
                found[TIMED] = trained
        require_alike(found, corpus)
        add_arms(table, preset, corpus, found)
        compare_arms(table, preset, corpus, found, [*OVER.values(), COMBINED, *ALONE])
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
    claim(
        "lm-combined-boosted",
        COMBINES,
        OVER["boosted-differential"].quantity,
        above(),
        "Boosted attention whose rounds are differential has a lower perplexity than boosted attention.",
        paper="not tested",
    ),
    claim(
        "lm-combined-differential",
        COMBINES,
        COMBINED.quantity,
        below(),
        "Boosted attention whose rounds are differential has a lower perplexity than differential attention (v2).",
        paper="not tested",
    ),
]


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    panels = []
    for corpus in preset.text.corpora:
        known = {rival: table.quantities.get(located(preset, corpus, OVER[rival].quantity)) for rival in RIVALS}
        ours = {rival: estimate for rival, estimate in known.items() if estimate is not None}
        if not ours:
            continue
        places = {rival: i for i, rival in enumerate(ours)}
        series = [measured("ours, 95 % interval", list(places.values()), list(ours.values()), "points")]
        paper = {places[rival]: OVER[rival].quantity.paper for rival in ours}
        said = {i: value for i, value in paper.items() if value is not None}
        if said:
            series.append(Series(name="paper, WikiText-103", x=list(said), y=list(said.values()), style="points"))
        panels.append(
            Panel(
                x_label="",
                y_label="boosted against it (% of perplexity)",
                series=series,
                title=short(preset, corpus),
                ticks={float(i): rival for rival, i in places.items()},
                levels={"no difference": 0.0},
            )
        )
    return Figure(
        name="differences",
        title="Boosted attention against every rival, paired by seed",
        caption=f"Below zero boosted attention is better. {describe_places(table)}",
        panels=panels,
    )


EXPERIMENT = Experiment(
    name="lm-controls",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=160,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    needed=on_first_text(asked),
)
