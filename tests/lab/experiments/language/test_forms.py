"""The tournament of forms from results made by hand: who goes on, for how long each trains, and what is compared."""

import math
from dataclasses import replace

import pytest

from boosted_attention.lab.experiments.language import _tournament
from boosted_attention.lab.experiments.language._arms import STANDARD
from boosted_attention.lab.experiments.language._decisions import assumed, settled
from boosted_attention.lab.experiments.language._tournament import FORMS, pair, screening, timings, trials, widths
from boosted_attention.lab.experiments.language.forms import BESIDE, EXPERIMENT, PRIMARY, SECOND, SECONDARY
from boosted_attention.lab.presets import FORMS_OF_THE_TOURNAMENT, PRESETS, DecidedForms, Size, Tournament
from boosted_attention.lab.work.language import Diverged
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import to_json
from tests.lab.experiments.language.arena import results_of, sweep_point
from tests.lab.experiments.made import check, language_result

STEPS, TEXT = 40, "wikitext-2"
STAGE = Tournament(
    forms=("local", "exclusive", "Parallax", "value residual"),
    rates=(0.5, 1.0, 2.0),
    first_seed=1,
    first_share=0.5,
    second_seeds=(2, 3),
    into_second=3,
    final_seeds=(4, 5, 6),
    into_final=2,
    wide=Size(recipe="arena-128", seeds=2),
)
PRESET = replace(
    PRESETS["forms"],
    text=replace(
        PRESETS["forms"].text,
        model={"vocab_size": 300, "n_layers": 2, "n_heads": 2, "max_len": 16},
        training={"steps": STEPS, "batch_size": 4},
        data={"train_tokens": 4096, "held_out_tokens": 512},
        tournament=STAGE,
    ),
)
TIMES = {STANDARD: 1.0, "local": 1.25, "exclusive": 1.1, "Parallax": 2.0, "value residual": 1.05}
SCREENED = {
    STANDARD: {0.5: 40.0, 1.0: 39.0, 2.0: 41.0},
    "local": {0.5: 38.0, 1.0: 37.0, 2.0: None},
    "exclusive": {0.5: 36.1, 1.0: 36.0, 2.0: 39.0},  # within half a per cent: the smaller rate
    "Parallax": {0.5: None, 1.0: None, 2.0: None},
    "value residual": {0.5: 45.0, 1.0: 44.0, 2.0: 46.0},
}


def timed():
    return {timings(PRESET).key: to_json(StepRatios(measured={**TIMES, **dict.fromkeys(widths(PRESET), 1.2)}))}


def first_stage():
    points = {
        screening(PRESET, name, factor, TIMES).key: sweep_point(value)
        for name, curve in SCREENED.items()
        for factor, value in curve.items()
    }
    return timed() | points


def stage(now, name, label, form, standard):
    """Results of a form and its rival, by seed."""
    ours, theirs = pair(now, name, label)
    made = zip((*ours.values(), *theirs.values()), (*form, *standard), strict=True)
    return {t.key: to_json(one if isinstance(one, Diverged) else language_result(one)) for t, one in made}


def second_stage(**forms):
    """First stage, and the perplexities of forms in the second, whose rivals have 50 and 52."""
    known = first_stage()
    now = settled(PRESET, results_of(known))
    for name in now.text.decided.forms.second:
        known |= stage(now, name, "stage 2", forms[name.replace(" ", "_")], (50.0, 52.0))
    return known


AHEAD = {"exclusive": (49.0, 50.0), "local": (49.9, 51.9), "value_residual": (60.0, 60.0)}


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
    assert found.second == ("exclusive", "local", "value residual")
    assert found.rates == {STANDARD: 1.0, "local": 1.0, "exclusive": 0.5, "Parallax": 0.5, "value residual": 1.0}
    few = replace(PRESET, text=replace(PRESET.text, tournament=replace(STAGE, into_second=1)))
    assert settled(few, results_of(first_stage())).text.decided.forms.second == ("exclusive",)


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
    exclusive, its_rival = pair(now, "exclusive", "stage 2")
    assert 2 * exclusive[2].config["training"]["lr"] == its_rival[2].config["training"]["lr"]


@pytest.mark.parametrize(
    ("forms", "final"),
    [
        (AHEAD, ("exclusive", "local")),
        ({**AHEAD, "local": (50.1, 52.1)}, ("exclusive",)),
        ({**AHEAD, "exclusive": (55.0, 55.0), "local": (51.0, 53.0)}, ("local",)),
        ({**AHEAD, "exclusive": (Diverged(diverged="step 3", data="one text"), 50.0)}, ("local",)),
    ],
)
def test_the_best_is_confirmed_and_a_second_only_if_it_is_ahead(forms, final):
    assert decided(second_stage(**forms)).final == final


def test_differences_are_of_log_perplexities_seed_by_seed():
    known = second_stage(**AHEAD)
    now = settled(PRESET, results_of(known))
    known |= stage(now, "exclusive", "stage 3", (48.0, 49.0, 51.0), (50.0, 50.0, 50.0))
    table = EXPERIMENT.table(now, results_of(known))
    second = [100 * math.log(a / b) for a, b in zip(AHEAD["exclusive"], (50.0, 52.0), strict=True)]
    check(table, {SECOND["exclusive"].on(TEXT): second})
    check(table, {PRIMARY["exclusive"].on(TEXT): [100 * math.log(a / 50.0) for a in (48.0, 49.0, 51.0)]})
    assert table.missing[PRIMARY["local"].on(TEXT)] == "not run"
    assert table.missing[PRIMARY["Parallax"].on(TEXT)] == "the form did not get there"
    assert table.missing[SECONDARY["exclusive", BESIDE[0]].on(TEXT)] == "not run"
    assert EXPERIMENT.figure is not None
    assert EXPERIMENT.figure(now, table, results_of(known)).panels


def test_confirmed_forms_meet_models_of_equal_cost_and_a_further_width():
    known = second_stage(**AHEAD)
    now = settled(PRESET, results_of(known))
    wide = _tournament.wide_timings(now)
    assert wide is not None
    assert wide.key in {t.key for t in trials(now)}
    assert {label for label, _ in wide.config["models"]} == {STANDARD, "exclusive", "local"}
    known[wide.key] = to_json(StepRatios(measured={STANDARD: 1.0, "exclusive": 1.5, "local": 1.25}))
    later = settled(PRESET, results_of(known))
    form, rival = _tournament.wide_pair(later, "exclusive")
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
