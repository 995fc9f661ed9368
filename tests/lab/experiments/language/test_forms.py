"""The tournament of forms from results made by hand: who goes on, for how long each trains, and what is compared."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from boosted_attention.lab.experiments.language import _tournament
from boosted_attention.lab.experiments.language._arms import STANDARD, arm_model
from boosted_attention.lab.experiments.language._decisions import assumed, settled
from boosted_attention.lab.experiments.language._tournament import FORMS, pair, trials, wide_timings
from boosted_attention.lab.experiments.language.forms import (
    BESIDE,
    EXPERIMENT,
    LEFT_BEHIND,
    PRIMARY,
    SECOND,
    SECONDARY,
    WIDE,
    WIDTH_CURVE,
)
from boosted_attention.lab.judging.facts import A_FORM_PAYS
from boosted_attention.lab.judging.verdicts import CANNOT_TELL, CONTRADICTED, FAILED, NOT_RUN, REPRODUCED
from boosted_attention.lab.presets import FORMS_OF_THE_TOURNAMENT, PRESETS, DecidedForms
from boosted_attention.lab.reproduce import all_trials
from boosted_attention.lab.trials.runner import order
from boosted_attention.lab.work.language import Diverged
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import to_json
from tests.lab.experiments.language.arena import results_of
from tests.lab.experiments.language.tournament import (
    AHEAD,
    BY_WIDTH,
    FINAL,
    PRESET,
    RIVALS,
    SCREENED,
    STAGE,
    TEXT,
    TIMES,
    WIDE_FORM,
    WIDE_RIVAL,
    WIDTH_TIME,
    finished,
    first_stage,
    second_stage,
    stage,
    timed,
    with_stage,
)
from tests.lab.experiments.made import check, ledger

LOST = Diverged(diverged="step 3", data="one text")


def decided(known):
    return settled(PRESET, results_of(known)).text.decided.forms


def test_nothing_is_trained_before_step_times_are_known():
    assert [t.work for t in trials(PRESET)] == ["language.time"]
    assert decided({}) == DecidedForms()


def test_the_first_stage_gives_all_the_same_time():
    now = settled(PRESET, results_of(timed()))
    screened = [t for t in trials(now) if t.work == "language.sweep"]
    assert len(screened) == 3 * len(TIMES)
    steps = {t.group: t.config["training"]["steps"] for t in screened}
    assert steps["standard, stage 1, sweep at d=64"] == 20
    assert steps["local, stage 1, sweep at d=64"] == 16  # 20 / 1.25
    assert steps["Parallax, stage 1, sweep at d=64"] == 10
    assert {t.config["training"]["seed"] for t in screened} == {1}
    base = PRESET.text.configuration().training.lr
    assert {t.config["training"]["lr"] for t in screened} == {base * factor for factor in STAGE.rates}


def test_the_lowest_validation_perplexities_go_on_and_what_diverged_does_not():
    found = decided(first_stage())
    assert found.second == ("value-basis", "local", "value residual")
    assert found.rates == {STANDARD: 1.0, "local": 1.0, "value-basis": 0.5, "Parallax": 0.5, "value residual": 1.0}
    few = settled(with_stage(into_second=1), results_of(first_stage()))
    assert few.text.decided.forms.second == ("value-basis",)


def test_a_form_is_ranked_by_its_lowest_perplexity_also_where_a_smaller_rate_is_taken():
    close = {**SCREENED, "local": {0.5: 40.0, 1.0: 36.05, 2.0: 40.0}}  # between value-basis's lowest and its rate's
    found = decided(first_stage(close))
    assert found.second == ("value-basis", "local", "value residual")
    assert found.rates["value-basis"] == 0.5
    table = EXPERIMENT.table(settled(PRESET, results_of(first_stage(close))), results_of(first_stage(close)))
    shown = table.rows["value-basis"][table.columns.index("stage 1: validation perplexity")]
    assert shown is not None
    assert shown.ours.mean == 36.0


def test_the_rival_of_the_later_stages_trains_as_long_as_the_form():
    now = settled(PRESET, results_of(first_stage()))
    form, rival = pair(now, "local", "stage 2")
    assert list(form) == list(rival) == [2, 3]
    for arm, steps, attention in ((form, 40, "local"), (rival, 50, "standard")):
        for seed, trial in arm.items():
            training = trial.config["training"]
            assert (training["steps"], training["seed"]) == (steps, seed)
            assert trial.config["model"]["attention"] == attention
    assert form[2].config["training"]["lr"] == rival[2].config["training"]["lr"]
    basis, its_rival = pair(now, "value-basis", "stage 2")
    assert 2 * basis[2].config["training"]["lr"] == its_rival[2].config["training"]["lr"]


@pytest.mark.parametrize(
    ("forms", "final"),
    [
        (AHEAD, ("value-basis", "local")),
        ({**AHEAD, "local": (50.1, 52.1)}, ("value-basis",)),
        ({**AHEAD, "value-basis": (55.0, 55.0), "local": (51.0, 53.0)}, ("local",)),
        ({**AHEAD, "value-basis": (LOST, 50.0)}, ("local",)),
    ],
)
def test_the_best_is_confirmed_and_a_second_only_if_it_is_ahead(forms, final):
    assert decided(second_stage(forms)).final == final


def log_percent(form, rival):
    return [100 * math.log(a / b) for a, b in zip(form, rival, strict=True)]


def test_differences_are_of_log_perplexities_seed_by_seed():
    now, known = finished()
    table = EXPERIMENT.table(now, results_of(known))
    check(
        table,
        {
            SECOND["value-basis"].on(TEXT): log_percent(AHEAD["value-basis"], (50.0, 52.0)),
            **{PRIMARY[name].on(TEXT): log_percent(tests, (50.0, 50.0, 50.0)) for name, tests in FINAL.items()},
            **{
                SECONDARY["value-basis", rival].on(TEXT): log_percent(FINAL["value-basis"], tests)
                for rival, tests in RIVALS.items()
            },
            SECONDARY["value-basis", WIDE].on(TEXT): log_percent(WIDE_FORM, WIDE_RIVAL),
        },
    )
    means = [None if cell is None else cell.ours.mean for cell in table.rows["value-basis"]]
    secondary = [np.mean(log_percent(FINAL["value-basis"], RIVALS[rival])) for rival in BESIDE[:-1]]
    assert means[-5:] == pytest.approx(
        [
            np.mean(log_percent(FINAL["value-basis"], (50.0, 50.0, 50.0))),
            *secondary,
            np.mean(log_percent(WIDE_FORM, WIDE_RIVAL)),
        ]
    )
    assert table.missing[PRIMARY["Parallax"].on(TEXT)] == "the form did not get there"


def test_what_is_not_there_yet_is_not_run():
    known = second_stage()
    now = settled(PRESET, results_of(known))
    table = EXPERIMENT.table(now, results_of(known))
    assert table.missing[PRIMARY["local"].on(TEXT)] == "stage 3 is not finished"
    assert table.missing[SECONDARY["value-basis", BESIDE[0]].on(TEXT)] == "not run"


def panels_of(now, known):
    assert EXPERIMENT.figure is not None
    results = results_of(known)
    return {panel.title: panel for panel in EXPERIMENT.figure(now, EXPERIMENT.table(now, results), results).panels}


def test_the_figure_has_forms_beside_the_standard_model_by_width():
    """Wider models whose steps take the same time stand above each other."""
    panels = panels_of(*finished())
    assert list(panels) == ["stage 1, equal time", "stage 2, equal steps", "stage 2", "stage 3"]
    series = {one.name: one for one in panels["stage 2, equal steps"].series}
    assert list(series) == [WIDTH_CURVE, "value-basis", "local", "value residual"]
    assert series[WIDTH_CURVE].x == [1.0, WIDTH_TIME, WIDTH_TIME, WIDTH_TIME]
    assert series[WIDTH_CURVE].y == [np.mean(tests) for tests in BY_WIDTH]
    for name, tests in AHEAD.items():
        assert (series[name].x, series[name].y) == ([TIMES[name]], [pytest.approx(np.mean(tests))])
    first = {one.name: (one.x, one.y) for one in panels["stage 1, equal time"].series}
    assert panels["stage 1, equal time"].levels == {"standard, as long": first[STANDARD][1][0]}
    assert first.keys() == TIMES.keys() - {"Parallax"}  # diverged
    assert first["value-basis"] == ([TIMES["value-basis"]], [36.0])
    assert panels["stage 3"].ticks == {0.0: "local", 1.0: "value-basis"}


def test_forms_that_were_left_behind_share_a_colour():
    now, known = finished()
    second = now.text.decided.forms.second or ()
    fewer = _tournament.as_decided(now, replace(now.text.decided.forms, second=second[:1], final=second[:1]))
    first = {one.name: one for one in panels_of(fewer, known)["stage 1, equal time"].series}
    assert set(first) == {STANDARD, second[0], LEFT_BEHIND}
    assert sorted(first[LEFT_BEHIND].x) == sorted(TIMES[name] for name in second[1:])


def test_the_figure_leaves_out_what_diverged_and_what_is_not_there():
    now, known = finished()
    standard = _tournament.width_trials(now)[STANDARD]
    known[standard[3].key] = to_json(LOST)
    (curve, *_) = panels_of(now, known)["stage 2, equal steps"].series
    assert curve.x == [WIDTH_TIME] * 3
    del known[standard[2].key]
    forms = panels_of(now, known)["stage 2, equal steps"].series
    assert [one.style for one in forms[1:]] == ["points"] * len(AHEAD)  # beside three widths
    for own in _tournament.width_trials(now).values():
        known = {key: value for key, value in known.items() if key not in {trial.key for trial in own.values()}}
    alone = panels_of(now, known)["stage 2, equal steps"].series
    assert [one.name for one in alone] == [one.name for one in forms[1:]]


def test_the_notes_say_what_differences_are_and_which_seeds_and_rates_the_stages_have():
    now, known = finished()
    notes = " ".join(EXPERIMENT.table(now, results_of(known)).notes)
    assert "a hundred times those of log test perplexity" in notes
    assert "percent of perplexity" not in notes
    assert "Stage 2: seeds 2, 3. Stage 3: seeds 4, 5, 6;" in notes
    assert "601" not in notes  # seeds of the preset, which the stages do not use
    assert "is 128: equal time again, seeds 4, 5, and the factors on the rates that stage 1 found at width 64" in notes
    for name in FINAL:
        here, wide = (
            own[0][4].config["training"] for own in (pair(now, name, "stage 3"), _tournament.wide_pair(now, name))
        )
        assert here["lr"] == wide["lr"]


def test_the_notes_show_the_spread_of_step_times_and_every_rate_of_the_first_stage():
    now, known = finished()
    notes = EXPERIMENT.table(now, results_of(known)).notes
    times, wide = (note for note in notes if note.startswith("Step times"))
    assert "median and quartiles of 200 interleaved steps of each, as multiples of those of standard" in times
    assert "at the further width, median of 200 interleaved steps" in wide
    assert "quartiles were not kept" in wide
    assert "local 1.250 [1.125, 1.500]" in times
    rule = "(of two within 0.5 % the smaller)"
    shown = "validation perplexity by factor on the rates"
    assert f"Stage 1, value-basis: {shown}: x 0.5 36.100, x 1 36.000, x 2 39.000; taken x 0.5 {rule}." in notes
    assert f"Stage 1, local: {shown}: x 0.5 38.000, x 1 37.000, x 2 diverged; taken x 1 {rule}." in notes
    assert (
        f"Stage 1, Parallax: {shown}: x 0.5 diverged, x 1 diverged, x 2 diverged; taken x 0.5, at the edge of the grid "
        f"{rule}." in notes
    )


def test_the_notes_show_the_processor_time_of_trainings_that_were_to_take_as_long():
    """As far as it was kept, with the sum of everything."""
    now, known = finished()
    took = {trial.key: 100.0 for trial in _tournament.trials(now)}
    form, _ = pair(now, "local", "stage 3")
    took |= {form[seed].key: seconds for seed, seconds in ((4, 90.0), (5, 110.0), (6, 130.0))}
    first = _tournament.screening(now, "local", 1.0, now.text.decided.forms.times)
    took[first.key] = 150.0
    lost, _ = pair(now, "value residual", "stage 2")
    del took[lost[2].key]
    notes = EXPERIMENT.table(now, results_of(known), lambda trial: took[trial.key]).notes
    one, two, three, spent = notes[-4:]
    assert one.startswith("Stage 1: processor time")
    assert "local 1.25 (1.00 to 1.50 of 2)" in one  # the third diverged
    assert "value residual 1.00 (1.00 to 1.00 of 1)" in two
    assert "local 1.10 (0.90 to 1.30 of 3)" in three
    assert "value-basis 1.00 (1.00 to 1.00 of 3)" in three
    hours = sum(took.values()) / 3600
    assert spent.startswith(
        f"Spent so far: {hours:.1f} hours of processor time in {len(took)} of {len(took) + 1} trials,"
    )
    assert EXPERIMENT.table(now, results_of(known)).notes[-1] != spent


def test_a_training_that_ended_early_says_nothing_of_equal_time():
    known = second_stage({**AHEAD, "value-basis": (LOST, 50.0)})
    now = settled(PRESET, results_of(known))
    notes = EXPERIMENT.table(now, results_of(known), lambda trial: 100.0).notes
    (two,) = (note for note in notes if note.startswith("Stage 2: processor time"))
    assert "local 1.00 (1.00 to 1.00 of 2)" in two
    assert "value-basis 1.00 (1.00 to 1.00 of 1)" in two


def test_the_notes_name_what_diverged_in_later_stages():
    known = second_stage({**AHEAD, "value-basis": (LOST, 50.0)})
    table = EXPERIMENT.table(settled(PRESET, results_of(known)), results_of(known))
    assert f"{TEXT}, value-basis, stage 2 diverged and is compared with nothing: seed 2: step 3." in table.notes
    assert table.failed[SECOND["value-basis"].on(TEXT)] == "a training diverged"


TEN = with_stage(final_seeds=tuple(range(10, 20)))


def ten_with(mean, p=None):
    """Ten differences with a standard deviation of 1; given ``p``, with the mean below zero that has this p value."""
    spread = np.arange(10) - 4.5
    mean = mean if p is None else float(stats.t.ppf(p / 2, 9)) / 10**0.5
    return spread / spread.std(ddof=1) + mean


def judged(**confirmed):
    """Claims and fact after a last stage with ten seeds, from each form's differences."""
    known = second_stage()
    now = settled(TEN, results_of(known))
    for name, values in confirmed.items():
        form = [v if isinstance(v, Diverged) else 50.0 * math.exp(v / 100) for v in values]
        known |= stage(now, name.replace("_", "-"), "stage 3", form, [50.0] * 10)
    found = ledger(EXPERIMENT, EXPERIMENT.table(now, results_of(known)))
    (fact,) = (f for f in found.facts if f.fact is A_FORM_PAYS)
    return fact, {row.claim.quantity: row for row in found.rows}


BETTER, WORSE, UNCLEAR = ten_with(-3.0), ten_with(3.0), ten_with(-0.1)


@pytest.mark.parametrize(
    ("basis", "local", "verdict"),
    [
        (WORSE, WORSE, CONTRADICTED),
        (WORSE, UNCLEAR, CANNOT_TELL),
        (WORSE, BETTER, REPRODUCED),
        (UNCLEAR, BETTER, REPRODUCED),
        (UNCLEAR, UNCLEAR, CANNOT_TELL),
        ([LOST] * 10, WORSE, CANNOT_TELL),
        ([LOST] * 10, [LOST] * 10, FAILED),
    ],
)
def test_the_forms_that_are_confirmed_decide(basis, local, verdict):
    fact, rows = judged(value_basis=basis, local=local)
    assert fact.verdict == verdict
    assert {rows[PRIMARY[name]].verdict for name in FORMS if name not in FINAL} == {NOT_RUN}


def test_the_correction_is_for_the_forms_that_are_confirmed():
    """A p value below 2.5 % survives beside one other form, though eleven might have entered; one above does not.

    Nor does it if trainings of the other form diverged.
    """
    assert judged(value_basis=ten_with(0, p=0.024), local=UNCLEAR)[0].verdict == REPRODUCED
    assert judged(value_basis=ten_with(0, p=0.024), local=[LOST] * 10)[0].verdict == REPRODUCED
    assert judged(value_basis=ten_with(0, p=0.026), local=[LOST] * 10)[0].verdict == CANNOT_TELL
    fact, rows = judged(value_basis=ten_with(0, p=0.026), local=UNCLEAR)
    assert fact.verdict == CANNOT_TELL
    row = rows[PRIMARY["value-basis"]]
    assert row.level == 0.025
    assert row.ours is not None
    smallest = row.claim.criterion.smallest(row.ours, 0.025)
    assert row.remark == f"10 seeds show an effect of {smallest:.3g} in four cases of five, at a level of 2.5 %"


def test_no_form_is_judged_before_all_that_are_confirmed_are_there():
    fact, rows = judged(value_basis=BETTER)
    assert fact.verdict == NOT_RUN
    assert rows[PRIMARY["value-basis"]].remark == "stage 3 is not finished"


def importance(trial):
    """What a trial of the tournament is for."""
    if "wider" in trial.label:
        return "further size"
    if "widths" in trial.group:
        return "by width"
    return "control" if trial.group.startswith(("standard, equal", "standard, gated")) else "decides"


def test_what_decides_begins_before_controls_the_curve_of_widths_and_the_further_size():
    found = sorted(all_trials(["lm-forms"], assumed(PRESETS["forms"])), key=order)
    begun = [name for name, _ in itertools.groupby(found, importance)]
    assert begun == ["decides", "control", "by width", "further size"]


def test_confirmed_forms_meet_models_of_equal_cost_and_a_further_width():
    known = second_stage()
    now = settled(PRESET, results_of(known))
    wide = wide_timings(now)
    assert wide is not None
    assert wide.key in {t.key for t in trials(now)}
    assert {label for label, _ in wide.config["models"]} == {STANDARD, "value-basis", "local"}
    known[wide.key] = to_json(StepRatios(measured={STANDARD: 1.0, "value-basis": 1.5, "local": 1.25}))
    later = settled(PRESET, results_of(known))
    form, rival = _tournament.wide_pair(later, "value-basis")
    assert list(form) == [4, 5]
    assert {t.config["model"]["d_model"] for t in (*form.values(), *rival.values())} == {128}
    assert rival[4].config["training"]["steps"] == round(1.5 * form[4].config["training"]["steps"])
    rivals = _tournament.beside(later, "local")
    assert {by_seed[4].config["model"]["attention"] for by_seed in rivals.values()} == {"standard", "gated-headwise"}


def test_the_plan_counts_every_stage():
    known = assumed(PRESET).text.decided.forms
    assert len(known.second or ()) == STAGE.into_second
    planned = trials(assumed(PRESET))
    seeds = {t.config["training"]["seed"] for t in planned if "data" in t.config}
    assert seeds == {STAGE.first_seed, *STAGE.second_seeds, *STAGE.final_seeds}


def test_the_tournament_that_ships_has_forms_that_exist_and_seeds_of_its_own():
    assert set(FORMS_OF_THE_TOURNAMENT) == set(FORMS)
    own = PRESETS["forms"].text.tournament
    assert own is not None
    stages = [{own.first_seed}, set(own.second_seeds), set(own.final_seeds)]
    arena = PRESETS["arena"].text
    assert arena.pilot is not None
    others = {*arena.seeds, *arena.reward_seeds, *arena.pilot.seeds, arena.sweep_seed}
    assert all(a.isdisjoint(b) for i, a in enumerate(stages) for b in (*stages[i + 1 :], others))


def test_cheap_corrections_have_a_gate_per_head():
    """The paper's gate costs nearly as many FLOPs as a low-rank round."""
    cheap = arm_model(PRESETS["forms"], FORMS["low-rank correction, headwise gate"])
    standard, gated = (
        replace(cheap, attention=name, attention_options={}) for name in ("standard", "boosted-low-rank")
    )
    assert cheap.flops() - standard.flops() < 0.6 * (gated.flops() - standard.flops())
