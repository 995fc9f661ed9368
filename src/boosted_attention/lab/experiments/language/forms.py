"""The tournament of forms: which further round inside a layer is worth its time?

Stage 1 trains every form at a few rates with one seed, each for as long as a shortened training of the standard model
takes; the best by validation loss go on at their best rate. Stage 2 trains these at full length with fresh seeds, each
beside the standard model that trains as long. Stage 3 confirms the best with fresh seeds again: at most two, and the
second only if it was ahead of standard. The comparison that decides is the one of stage 3 at equal time, corrected for
the number of forms; equal FLOPs, equal parameters, a gated standard model and a further width stand beside it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from boosted_attention.chart import Figure, Panel, Series, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import PLAIN, STANDARD, Arm, arm_model, matched_to
from boosted_attention.lab.experiments.language._shared import (
    Found,
    against_zero,
    by_seed,
    compare,
    describe_places,
    located,
    perplexity,
    require_alike,
    text_table,
    validation_loss,
)
from boosted_attention.lab.experiments.language._trials import preset_steps, sweep_trial, timing_trial, training_trial
from boosted_attention.lab.experiments.language.sweep import best_factor
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import A_FORM_PAYS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Cell, Table, cell, exactly, over_seeds
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import DecidedForms, Preset, Tournament
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import SweepPoint
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import from_json

TITLE = "Which form pays? Further rounds against the standard model of equal time"
ONE_LAYER = {"boosted_layers": (1,)}  # the layer whose correction was worth most in trained models
SHARED_HEADWISE: Arm = {"attention": "boosted-shared", "attention_options": {"gate": "headwise"}}
FORMS: dict[str, Arm] = {
    "local": {"attention": "local"},
    "exclusive": {"attention": "exclusive"},
    "value residual": {**PLAIN[STANDARD], "value_residual": True},
    "local, exclusive, value residual": {"attention": "local-exclusive", "value_residual": True},
    "value-basis": {"attention": "value-basis"},
    "value-basis, one layer": {"attention": "value-basis", **ONE_LAYER},
    "Parallax": {"attention": "parallax"},
    "low-rank correction": {"attention": "boosted-low-rank"},
    "normalised residual": {"attention": "boosted", "attention_options": {"residual": "normalised"}},
    "shared K/V, headwise gate": SHARED_HEADWISE,
    "shared K/V, headwise gate, one layer": {**SHARED_HEADWISE, **ONE_LAYER},
}
GATED: Arm = {"attention": "gated-headwise"}
USUAL = Tournament(  # of presets that have none
    forms=("local", "exclusive"),
    rates=(1.0,),
    first_seed=1,
    first_share=0.5,
    second_seeds=(2,),
    into_second=1,
    final_seeds=(3, 4),
    into_final=1,
)

PRIMARY = {name: Quantity(f"{name} - standard, equal time") for name in FORMS}
SECOND = {name: Quantity(f"{name} - standard, equal time, stage 2") for name in FORMS}
EQUAL_FLOPS, EQUAL_PARAMETERS, GATED_STANDARD, WIDE = "equal FLOPs", "equal parameters", "gated standard", "wider"
BESIDE = (EQUAL_FLOPS, EQUAL_PARAMETERS, GATED_STANDARD, WIDE)
SECONDARY = {(name, rival): Quantity(f"{name} - standard, {rival}") for name in FORMS for rival in BESIDE}
COLUMNS = [
    "step time (standard = 1)",
    "FLOPs (standard = 1)",
    "parameters (standard = 1)",
    "stage 1: validation perplexity",
    "best rate",
    "stage 2: test against standard (%)",
    "stage 3: test against standard (%)",
    *(f"{rival} (%)" for rival in BESIDE),
]


def plan(preset: Preset) -> Tournament:
    return preset.text.tournament or USUAL


def text_of(preset: Preset) -> str:
    """The text of the tournament: the preset's first."""
    return preset.text.corpora[0]


def with_standard(forms: Sequence[str]) -> dict[str, Arm]:
    """The standard model, and forms by name."""
    return {STANDARD: PLAIN[STANDARD], **{name: FORMS[name] for name in forms}}


# Trials of the stages


def timings(preset: Preset) -> Trial:
    return timing_trial(preset, with_standard(plan(preset).forms), "forms")


def screening(preset: Preset, name: str, factor: float, times: Mapping[str, float]) -> Trial:
    """A training of stage 1, which takes as long as the standard model's."""
    stage = plan(preset)
    arm, steps = with_standard(stage.forms)[name], round(stage.first_share * preset_steps(preset) / times[name])
    return sweep_trial(
        preset, text_of(preset), arm, f"{name}, stage 1", factor, steps=max(1, steps), seed=stage.first_seed
    )


def contestants(preset: Preset, name: str, seeds: Sequence[int], stage: str) -> dict[int, Trial]:
    """A form at full length, by seed."""
    return full_length(preset, FORMS[name], seeds, f"{name}, {stage}", factor_of(preset, name))


def rivals(preset: Preset, name: str, seeds: Sequence[int], stage: str, times: Mapping[str, float]) -> dict[int, Trial]:
    """The standard model that trains as long as a form, by seed."""
    label = f"standard, as long as {name}, {stage}"
    return full_length(preset, PLAIN[STANDARD], seeds, label, factor_of(preset, STANDARD), times[name])


def beside(preset: Preset, name: str) -> dict[str, dict[int, Trial]]:
    """The secondary rivals of a form that is confirmed."""
    seeds, standard = plan(preset).final_seeds, factor_of(preset, STANDARD)
    arms = {
        EQUAL_FLOPS: equal_cost(preset, name, "flops"),
        EQUAL_PARAMETERS: equal_cost(preset, name, "parameters"),
        GATED_STANDARD: GATED,
    }
    return {
        rival: full_length(preset, arm, seeds, f"standard, {rival}, {name}", standard) for rival, arm in arms.items()
    }


def full_length(
    preset: Preset, arm: Arm, seeds: Sequence[int], label: str, factor: float, share: float = 1.0
) -> dict[int, Trial]:
    steps = round(share * preset_steps(preset))
    return {
        seed: training_trial(preset, text_of(preset), arm, seed, label, steps=steps, factor=factor) for seed in seeds
    }


def equal_cost(preset: Preset, name: str, by: str) -> Arm:
    """The standard model that costs what a form costs."""
    return matched_to(arm_model(preset, {**FORMS[name], "value_residual": False}), {}, by)


def factor_of(preset: Preset, name: str) -> float:
    return preset.text.decided.forms.rates[name]


def wider(preset: Preset) -> Preset | None:
    """The preset at the further size; None if it has none."""
    size = plan(preset).wide
    return None if size is None else preset.at(size)


def wide_timings(preset: Preset) -> Trial | None:
    """Step times at the further size, of the forms that are confirmed."""
    wide, final = wider(preset), preset.text.decided.forms.final
    return None if wide is None or not final else timing_trial(wide, with_standard(final), "forms, wider")


def wide_pair(preset: Preset, name: str) -> list[dict[int, Trial]]:
    """A form and the standard model that trains as long, at the further size; none while step times are unknown."""
    wide, size, times = wider(preset), plan(preset).wide, preset.text.decided.forms.wide_times
    if wide is None or size is None or name not in times:
        return []
    seeds = plan(preset).final_seeds[: size.seeds]
    return [contestants(wide, name, seeds, "wider"), rivals(wide, name, seeds, "wider", times)]


def trials(preset: Preset) -> list[Trial]:
    """Everything that is known to be done; each stage follows from the one before."""
    stage, known = plan(preset), preset.text.decided.forms
    found = [timings(preset)]
    if known.times:
        names = with_standard(stage.forms)
        found += [screening(preset, name, factor, known.times) for name in names for factor in stage.rates]
    for names, seeds, label in (
        (known.second, stage.second_seeds, "stage 2"),
        (known.final, stage.final_seeds, "stage 3"),
    ):
        for name in names or ():
            found += contestants(preset, name, seeds, label).values()
            found += rivals(preset, name, seeds, label, known.times).values()
    for name in known.final or ():
        found += [trial for runs in beside(preset, name).values() for trial in runs.values()]
    wide = wide_timings(preset)
    found += [] if wide is None else [wide]
    found += [trial for name in known.final or () for runs in wide_pair(preset, name) for trial in runs.values()]
    return found


def needed(preset: Preset) -> list[Trial]:
    """The first stage; what follows is shown as it is there."""
    return trials(preset)[: 1 + len(plan(preset).rates) * (1 + len(plan(preset).forms))]


# What the stages decide


def decided(preset: Preset, results: Results) -> DecidedForms:
    """What the results of the stages decide, as far as they are there.

    Args:
        preset: what it says of decisions is not looked at.
        results: results of trials; KeyError for those that are not there.
    """
    found = DecidedForms()
    with suppress(KeyError):
        found = DecidedForms(times=from_json(StepRatios, results(timings(preset))).measured)
        screened = {name: points(preset, results, name, found.times) for name in with_standard(plan(preset).forms)}
        found = after_first(plan(preset), found, screened)
        leads = {name: lead(as_decided(preset, found), results, name) for name in found.second or ()}
        found = after_second(plan(preset), found, leads)
        timed = wide_timings(as_decided(preset, found))
        if timed is not None:
            found = replace(found, wide_times=from_json(StepRatios, results(timed)).measured)
    return found


def as_decided(preset: Preset, found: DecidedForms) -> Preset:
    """The preset with what is decided of its forms."""
    return replace(preset, text=replace(preset.text, decided=replace(preset.text.decided, forms=found)))


def points(preset: Preset, results: Results, name: str, times: Mapping[str, float]) -> dict[float, float | None]:
    """Validation perplexity of a form in stage 1, by factor; None where training diverged."""
    found = {
        factor: from_json(SweepPoint, results(screening(preset, name, factor, times))) for factor in plan(preset).rates
    }
    return {factor: None if p.best is None else p.best.validation_perplexity for factor, p in found.items()}


def after_first(
    stage: Tournament, known: DecidedForms, screened: Mapping[str, Mapping[float, float | None]]
) -> DecidedForms:
    """Choose rates, and the forms of stage 2: those with the lowest validation perplexity, each at its best rate."""
    rates = {name: best_factor(found) or min(found) for name, found in screened.items()}
    best = {name: found[rates[name]] for name, found in screened.items() if name != STANDARD}
    ranked = sorted((value, name) for name, value in best.items() if value is not None)
    second = tuple(name for _, name in ranked[: stage.into_second])
    return replace(known, rates=rates, second=second)


def lead(preset: Preset, results: Results, name: str) -> float | None:
    """Mean validation loss of a form above that of the standard model of equal time; None where one diverged."""
    seeds, times = plan(preset).second_seeds, preset.text.decided.forms.times
    form = by_seed(results, name, contestants(preset, name, seeds, "stage 2"))
    rival = by_seed(results, STANDARD, rivals(preset, name, seeds, "stage 2", times))
    if form.diverged or rival.diverged:
        return None
    ours, theirs = validation_loss(form[name]), validation_loss(rival[STANDARD])
    return statistics.fmean(ours[seed] - theirs[seed] for seed in seeds)


def after_second(stage: Tournament, known: DecidedForms, leads: Mapping[str, float | None]) -> DecidedForms:
    """Choose the forms to be confirmed: the best, and further ones that are ahead of standard."""
    ranked = sorted((value, name) for name, value in leads.items() if value is not None)
    chosen = [name for i, (value, name) in enumerate(ranked[: stage.into_final]) if i == 0 or value < 0]
    return replace(known, final=tuple(chosen))


def assumed(preset: Preset) -> DecidedForms:
    """What may be decided, for an estimate: FLOPs are time, and the costliest forms go on."""
    stage = plan(preset)
    flops = {name: arm_model(preset, arm).flops() for name, arm in with_standard(stage.forms).items()}
    times = {name: value / flops[STANDARD] for name, value in flops.items()}
    costliest = sorted(stage.forms, key=lambda name: -times[name])
    return DecidedForms(
        times=times,
        wide_times=times,
        rates=dict.fromkeys(times, 1.0),
        second=tuple(costliest[: stage.into_second]),
        final=tuple(costliest[: stage.into_final]),
    )


# The table


def log_percent(form: BySeed, rival: BySeed) -> dict[int, float]:
    """A hundred times the difference of log perplexities, seed by seed: about the percentage, below zero if better."""
    return {seed: 100 * math.log(form[seed] / rival[seed]) for seed in form if seed in rival}


def compared(
    table: Table,
    preset: Preset,
    results: Results,
    quantity: Quantity,
    form: Mapping[int, Trial],
    rival: Mapping[int, Trial],
) -> Cell | None:
    """Compare a form with a rival, as far as both are there; say why not where they are not."""
    quantity = located(preset, text_of(preset), quantity)
    try:
        ours, theirs = by_seed(results, "form", form), by_seed(results, "rival", rival)
    except KeyError:
        table.missing[quantity] = "not run"
        return None
    if ours.diverged or theirs.diverged:
        table.failed[quantity] = "a training diverged"
        return None
    require_alike(Found({**ours, **theirs}), text_of(preset))
    values = log_percent(perplexity(ours["form"]), perplexity(theirs["rival"]))
    compare(table, preset, text_of(preset), [against_zero(quantity, values)])
    return cell(quantity, over_seeds(values))


def collect(preset: Preset, results: Results) -> Table:
    stage = plan(preset)
    table = text_table(TITLE, preset.with_corpora([text_of(preset)]), COLUMNS)
    for name in with_standard(stage.forms):
        table.add_row(name, row(table, preset, results, name))
    for quantity in (*PRIMARY.values(), *SECOND.values(), *SECONDARY.values()):
        there = located(preset, text_of(preset), quantity)
        if not any(there in known for known in (table.quantities, table.missing, table.failed)):
            table.missing[there] = "the form did not get there"
    table.notes.append(
        f"Stage 1: seed {stage.first_seed}, rates x {', '.join(f'{factor:g}' for factor in stage.rates)}, each form for as "
        f"long as the standard model's {round(stage.first_share * preset_steps(preset)):,} steps take. Stage 2: seeds "
        f"{', '.join(map(str, stage.second_seeds))}. Stage 3: seeds {', '.join(map(str, stage.final_seeds))}. Differences "
        "are a hundred times those of log test perplexity, below zero where the form is better; equal time means that "
        "the standard model trains more steps. The last four columns are secondary."
    )
    return table


def row(table: Table, preset: Preset, results: Results, name: str) -> list[Cell | None]:
    """Costs, stages and secondary comparisons of one form; costs alone of the standard model."""
    known, stage = preset.text.decided.forms, plan(preset)
    models = [arm_model(preset, with_standard(stage.forms)[one]) for one in (name, STANDARD)]
    own = points(preset, results, name, known.times)
    value = own[known.rates[name]]
    cells: list[Cell | None] = [
        Cell(exactly(known.times[name])),
        Cell(exactly(models[0].flops() / models[1].flops())),
        Cell(exactly(models[0].num_params() / models[1].num_params())),
        None if value is None else Cell(exactly(value)),
        Cell(exactly(known.rates[name])),
    ]
    if name == STANDARD:
        return cells + [None] * (len(COLUMNS) - len(cells))
    for names, seeds, label, quantities in (
        (known.second, stage.second_seeds, "stage 2", SECOND),
        (known.final, stage.final_seeds, "stage 3", PRIMARY),
    ):
        there = name in (names or ())
        runs = (
            (contestants(preset, name, seeds, label), rivals(preset, name, seeds, label, known.times))
            if there
            else None
        )
        cells.append(None if runs is None else compared(table, preset, results, quantities[name], *runs))
    if name not in (known.final or ()):
        return cells + [None] * len(BESIDE)
    confirmed = contestants(preset, name, stage.final_seeds, "stage 3")
    for rival, runs in beside(preset, name).items():
        cells.append(compared(table, preset, results, SECONDARY[name, rival], confirmed, runs))
    pair = wide_pair(preset, name)
    cells.append(compared(table, preset, results, SECONDARY[name, WIDE], *pair) if pair else None)
    return cells


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    """Draw what every form gained against what it cost."""
    column = {heading: i for i, heading in enumerate(table.columns)}
    panels = []
    for heading, quantities in (
        ("stage 2: test against standard (%)", SECOND),
        ("stage 3: test against standard (%)", PRIMARY),
    ):
        series: list[Series] = []
        for name in plan(preset).forms:
            cells = table.rows[name]
            gained, time = cells[column[heading]], cells[0]
            if gained is not None and time is not None:
                series.append(measured(name, [time.ours.mean], [gained.ours], "points"))
        if series:
            panels.append(
                Panel(
                    x_label=table.columns[0],
                    y_label="log perplexity x 100, against standard of equal time",
                    series=series,
                    title=heading.partition(":")[0],
                    levels={"no gain": 0.0},
                )
            )
    first = {name: (cells[0], cells[3]) for name, cells in table.rows.items()}
    shown = [
        Series(name=name, x=[time.ours.mean], y=[value.ours.mean], style="points")
        for name, (time, value) in first.items()
        if time is not None and value is not None
    ]
    panels.insert(0, Panel(x_label=table.columns[0], y_label="validation perplexity", series=shown, title="stage 1"))
    return Figure(
        name="forms",
        title="Forms of attention at equal time",
        caption=f"Not in the paper: below zero, the form is worth its time. {describe_places(table)}",
        panels=panels,
    )


CLAIMS = [
    claim(
        f"form-{name.replace(', ', '-').replace(' ', '-').replace('/', '').lower()}",
        A_FORM_PAYS,
        PRIMARY[name],
        below(),
        f"{name[0].upper() + name[1:]}: a lower perplexity than the standard model that trains as long.",
        paper="not tested",
    )
    for name in FORMS
]

EXPERIMENT = Experiment(
    name="lm-forms",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=195,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    needed=needed,
)
