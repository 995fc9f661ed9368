"""The tournament of forms: which further round inside a layer is worth its time?

What decides is the comparison of the last stage with the standard model that trains as long, corrected for the number
of forms confirmed; equal FLOPs, equal parameters, a gated standard model and a further width stand beside it. The
question is ours, not the paper's; ``_tournament.py`` has the stages.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from contextlib import suppress

from boosted_attention.chart import Figure, Panel, Series, measured
from boosted_attention.lab.experiment import Experiment, Results, Took
from boosted_attention.lab.experiments._grid import described
from boosted_attention.lab.experiments.language._arms import STANDARD, arm_model
from boosted_attention.lab.experiments.language._shared import (
    Found,
    against_zero,
    by_seed,
    compare,
    describe_places,
    describe_times,
    is_there,
    located,
    note_diverged,
    perplexity,
    places,
    require_alike,
    short,
)
from boosted_attention.lab.experiments.language._tournament import (
    EQUAL_FLOPS,
    EQUAL_PARAMETERS,
    FORMS,
    GATED_STANDARD,
    beside,
    lowest,
    needed,
    pair,
    plan,
    points,
    screening,
    text_of,
    timings,
    trials,
    wide_pair,
    wide_timings,
    wider,
    width_trials,
    with_standard,
)
from boosted_attention.lab.experiments.language._trials import preset_steps
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import A_FORM_PAYS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Cell, Table, cell, exactly, over_seeds
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.statistics import Estimate

TITLE = "Which form pays? Further rounds against the standard model of equal time"
PRIMARY = {name: Quantity(f"{name} - standard, equal time") for name in FORMS}
SECOND = {name: Quantity(f"{name} - standard, equal time, stage 2") for name in FORMS}
WIDE = "a further width"
BESIDE = (EQUAL_FLOPS, EQUAL_PARAMETERS, GATED_STANDARD, WIDE)
SECONDARY = {(name, rival): Quantity(f"{name} - standard, {rival}") for name in FORMS for rival in BESIDE}
STEP_TIME, STAGE_1 = "step time (standard = 1)", "stage 1: validation perplexity"
STAGE_2, STAGE_3 = "stage 2: test against standard (%)", "stage 3: test against standard (%)"
WIDTH_CURVE = "standard, by width"
LEFT_BEHIND = "left behind in stage 1"
COLUMNS = [
    STEP_TIME,
    "FLOPs (standard = 1)",
    "parameters (standard = 1)",
    STAGE_1,
    "best rate",
    STAGE_2,
    STAGE_3,
    *(f"{rival} (%)" for rival in BESIDE),
]


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
    table = Table(TITLE, COLUMNS, precision=2, places=places(preset.with_corpora([text_of(preset)])))
    for name in with_standard(stage.forms):
        table.add_row(name, row(table, preset, results, name))
    for quantity in (*PRIMARY.values(), *SECOND.values(), *SECONDARY.values()):
        there = located(preset, text_of(preset), quantity)
        if not any(there in known for known in (table.quantities, table.missing, table.failed)):
            table.missing[there] = "the form did not get there"
    table.notes += [*describe_stages(preset), *describe_clocked(preset, results)]
    for name in with_standard(stage.forms):
        found = described(points(preset, results, name, preset.text.decided.forms.times))
        table.notes.append(f"Stage 1, {name}: validation perplexity by factor on the rates: {found}.")
    note_lost(table, preset, results)
    return table


def describe_stages(preset: Preset) -> list[str]:
    """What the stages compare, with which seeds and at which rates."""
    stage, wide = plan(preset), wider(preset)
    first = f"{round(stage.first_share * preset_steps(preset)):,} steps of the standard model"
    second, final = (", ".join(map(str, seeds)) for seeds in (stage.second_seeds, stage.final_seeds))
    told = [
        f"Preset {preset.name} on {short(preset, text_of(preset))}. Stage 1: seed {stage.first_seed}, each model for "
        f"as long as {first} take; the lowest validation perplexity of its rates is shown, and decides which forms go "
        f"on. Stage 2: seeds {second}. Stage 3: seeds {final}; it alone decides. Differences are a hundred times those "
        "of log test perplexity, paired by seed, below zero where the form is better; equal time means that the "
        "standard model trains as long as the form, more steps where the form is slower.",
        "Equal FLOPs, equal parameters and gated standard are secondary: these rivals of stage 3 train as many steps "
        "as the form, at the standard model's factor on the rates. So do the standard models by width, with the seeds "
        "of stage 2. A form that adds neither FLOPs nor parameters has one rival for both: the same trainings stand in "
        "two columns.",
    ]
    if wide is not None and stage.wide is not None:
        widths = [one.text.configuration().model.d_model for one in (wide, preset)]
        seeds = ", ".join(map(str, stage.final_seeds[: stage.wide.seeds]))
        told.append(
            f"The further width, secondary too, is {widths[0]}: equal time again, seeds {seeds}, and the factors on "
            f"the rates that stage 1 found at width {widths[1]}, since nothing is tuned there."
        )
    return told


def describe_clocked(preset: Preset, results: Results) -> list[str]:
    """The step times on which the lengths of equal time rest."""
    wide = wide_timings(preset)
    at_wide = [] if wide is None else describe_times(results, wide, " at the further width")
    return describe_times(results, timings(preset)) + at_wide


def costs(preset: Preset, results: Results, took: Took) -> list[str]:
    """How equal the time of equal time was in the end, and what the tournament took so far."""
    known = preset.text.decided.forms
    stages = {"Stage 1": first_pairs(preset)}
    stages |= {
        heading: {name: by_seed_in_pairs(*pair(preset, name, stage)) for name in names}
        for heading, stage, names in (
            ("Stage 2", "stage 2", known.second or ()),
            ("Stage 3", "stage 3", known.final or ()),
        )
    }
    told = []
    for heading, forms in stages.items():
        found = {name: shares(results, took, pairs) for name, pairs in forms.items()}
        ratios = "; ".join(
            f"{name} {statistics.median(v):.2f} ({min(v):.2f} to {max(v):.2f} of {len(v)})"
            for name, v in found.items()
            if v
        )
        if ratios:
            told.append(
                f"{heading}: processor time of a form's trainings over that of the standard model's which were to take "
                f"as long, median and range: {ratios}."
            )
    distinct = {trial.key: trial for trial in trials(preset) if is_there(results, trial)}.values()
    spent = [seconds for trial in distinct if (seconds := known_seconds(took, trial)) is not None]
    told.append(
        f"Spent so far: {sum(spent) / 3600:.1f} hours of processor time in {len(spent)} of {len(distinct)} trials, "
        "whose time is known; of trials that were stopped and went on, in the process that finished them."
    )
    return told


Pairs = list[tuple[Trial, Trial]]  # of a form, and of the standard model that trains as long


def first_pairs(preset: Preset) -> dict[str, Pairs]:
    """Each form's trainings of stage 1, with the standard model's at the same rate."""
    stage, times = plan(preset), preset.text.decided.forms.times

    def at(name: str, factor: float) -> Trial:
        return screening(preset, name, factor, times)

    return {
        name: [(at(name, factor), at(STANDARD, factor)) for factor in stage.rates]
        for name in (stage.forms if times else ())
    }


def by_seed_in_pairs(form: Mapping[int, Trial], rival: Mapping[int, Trial]) -> Pairs:
    return [(form[seed], rival[seed]) for seed in form]


def shares(results: Results, took: Took, pairs: Pairs) -> list[float]:
    """Processor time of trainings over that of their rivals, where both are known and neither ended early."""
    found = []
    for pair_of_trials in pairs:
        known = [known_seconds(took, trial) for trial in pair_of_trials if went_through(results, trial)]
        ours, theirs = known if len(known) == 2 else (None, None)
        if ours is not None and theirs is not None:
            found.append(ours / theirs)
    return found


def went_through(results: Results, trial: Trial) -> bool:
    """Whether a training is there that did not diverge."""
    return is_there(results, trial) and not results(trial).get("diverged")


def known_seconds(took: Took, trial: Trial) -> float | None:
    """The processor time of a trial; None if it is not known."""
    try:
        return took(trial)
    except KeyError:
        return None


def note_lost(table: Table, preset: Preset, results: Results) -> None:
    """Name the trainings at full length that diverged; those of stage 1 stand among its rates."""
    groups: dict[str, dict[int, Trial]] = {}
    for trial in trials(preset):
        if trial.work == "language.train":
            groups.setdefault(trial.group, {})[trial.config["training"]["seed"]] = trial
    for name, own in groups.items():
        with suppress(KeyError):  # not there yet
            note_diverged(table, preset, text_of(preset), by_seed(results, name, own), "is compared with nothing")


def row(table: Table, preset: Preset, results: Results, name: str) -> list[Cell | None]:
    """Costs, stages and secondary comparisons of one form; costs alone of the standard model."""
    known, stage = preset.text.decided.forms, plan(preset)
    models = [arm_model(preset, with_standard(stage.forms)[one]) for one in (name, STANDARD)]
    value = lowest(points(preset, results, name, known.times))
    cells: list[Cell | None] = [
        Cell(exactly(known.times[name])),
        Cell(exactly(models[0].flops() / models[1].flops())),
        Cell(exactly(models[0].num_params() / models[1].num_params())),
        None if value is None else Cell(exactly(value)),
        Cell(exactly(known.rates[name])),
    ]
    if name == STANDARD:
        return cells + [None] * (len(COLUMNS) - len(cells))
    second = pair(preset, name, "stage 2") if name in (known.second or ()) else None
    cells.append(None if second is None else compared(table, preset, results, SECOND[name], *second))
    if name not in (known.final or ()):
        return cells + [None] * (1 + len(BESIDE))
    cells.append(confirmed_form(table, preset, results, name))
    confirmed, _ = pair(preset, name, "stage 3")
    for rival, own in beside(preset, name).items():
        cells.append(compared(table, preset, results, SECONDARY[name, rival], confirmed, own))
    wide = wide_pair(preset, name)
    cells.append(compared(table, preset, results, SECONDARY[name, WIDE], *wide) if wide else None)
    return cells


def confirmed_form(table: Table, preset: Preset, results: Results, name: str) -> Cell | None:
    """Compare a form in stage 3, once all that are confirmed are there: the correction is for their number."""
    pairs = [own for one in preset.text.decided.forms.final or () for own in pair(preset, one, "stage 3")]
    if not all(is_there(results, trial) for own in pairs for trial in own.values()):
        table.missing[located(preset, text_of(preset), PRIMARY[name])] = "stage 3 is not finished"
        return None
    return compared(table, preset, results, PRIMARY[name], *pair(preset, name, "stage 3"))


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    """Draw perplexity against time, with the standard model by width as the line to beat; and what stages found."""
    panels = [first_panel(preset, table), *time_panels(preset, results)]
    for heading in (STAGE_2, STAGE_3):
        column = table.columns.index(heading)
        gained = {name: c.ours for name in plan(preset).forms if (c := table.rows[name][column]) is not None}
        if gained:
            panels.append(
                Panel(
                    x_label="",
                    y_label="100 x log perplexity, against equal time",
                    series=[measured("ours, 95 % interval", range(len(gained)), list(gained.values()), "points")],
                    title=heading.partition(":")[0],
                    ticks={float(i): name for i, name in enumerate(gained)},
                    levels={"no gain": 0.0},
                )
            )
    return Figure(
        name="forms",
        title="Forms of attention, and what their time buys as width",
        caption=f"Not in the paper. The line is the standard model by width. {describe_places(table)}",
        panels=panels,
    )


def first_panel(preset: Preset, table: Table) -> Panel:
    """Validation perplexity of stage 1, where all train for one time, against the time of a step.

    Forms that were left behind share one colour, of which there are too few for all.
    """
    column, second = table.columns.index(STAGE_1), preset.text.decided.forms.second
    points: dict[str, list[tuple[float, float]]] = {}
    for name, row in table.rows.items():
        time, value = row[0], row[column]
        if time is not None and value is not None:
            shown = name if second is None or name in (STANDARD, *second) else LEFT_BEHIND
            points.setdefault(shown, []).append((time.ours.mean, value.ours.mean))
    series = [
        Series(name=name, x=[x for x, _ in own], y=[y for _, y in own], style="points") for name, own in points.items()
    ]
    standard = table.rows[STANDARD][column]
    return Panel(
        x_label=STEP_TIME,
        y_label="validation perplexity",
        series=series,
        title="stage 1, equal time",
        levels={} if standard is None else {"standard, as long": standard.ours.mean},
    )


def time_panels(preset: Preset, results: Results) -> list[Panel]:
    """Test perplexity of stage 2, where all train for one number of steps, against the time of a step."""
    known = preset.text.decided.forms
    if not known.second:
        return []
    curve = [
        (known.times[name], e) for name, own in width_trials(preset).items() for e in test_estimates(results, name, own)
    ]
    curve.sort(key=lambda point: point[0])
    series = [measured(WIDTH_CURVE, [time for time, _ in curve], [e for _, e in curve])] if len(curve) > 1 else []
    forms = {name: pair(preset, name, "stage 2")[0] for name in known.second}
    series += [
        measured(name, [known.times[name]], [e], "points")
        for name, own in forms.items()
        for e in test_estimates(results, name, own)
    ]
    panel = Panel(x_label=STEP_TIME, y_label="test perplexity", series=series, title="stage 2, equal steps")
    return [panel] if series else []


def test_estimates(results: Results, name: str, own: Mapping[int, Trial]) -> list[Estimate]:
    """Test perplexity over seeds; nothing where a training diverged or is not there yet."""
    try:
        found = by_seed(results, name, own)
    except KeyError:
        return []
    return [] if found.diverged else [over_seeds(perplexity(found[name]))]


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
    costs=costs,
)
