"""What a reproduction would take: numbers of one training in a row, sums in the last."""

from dataclasses import replace

import pytest

from boosted_attention.lab import estimate as module
from boosted_attention.lab.estimate import by_experiment, estimate, hours, spent_on, taken, trainings
from boosted_attention.lab.experiments.language._decisions import assumed
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.reproduce import all_trials
from boosted_attention.lab.trials.store import FOLDER, write_record

PRESET = PRESETS["cpu"].with_corpora(["stdlib", "wikitext-2"])  # 2 texts, 3 seeds
BASE = PRESET.text.configuration()
SECONDS = 0.01  # of a row, whatever the model


@pytest.fixture
def columns(monkeypatch):
    monkeypatch.setattr(module, "seconds_per_row", lambda model, training: SECONDS)
    table = estimate(["lm-main"], PRESET, tflops=2.0)
    return {column.header: list(column.cells) for column in table.columns}


def test_every_model_has_a_row_with_its_own_numbers(columns):
    assert columns["model"] == ["standard", "twicing", "param-fair", "boosted", "lm-main", "all"]
    assert columns["trainings"] == ["6"] * 4 + ["24"] * 2
    boosted = replace(BASE.model, attention="boosted")
    tokens = BASE.training.steps * BASE.training.batch_size * BASE.model.max_len
    flops = 3 * boosted.flops() * tokens
    shown = {header: cells[3] for header, cells in columns.items()}
    assert shown["parameters"] == f"{boosted.num_params():,}"
    assert (shown["steps"], shown["tokens"], shown["FLOPs"]) == (
        f"{BASE.training.steps:,}",
        f"{tokens / 1e6:.0f} M",
        f"{flops:.1e}",
    )
    assert shown["one core here"] == hours(SECONDS * BASE.training.steps * BASE.training.batch_size)
    assert shown["2 TFLOP/s"] == hours(flops / 2e12)


def test_the_last_row_is_the_sum_over_trainings(columns):
    flops = [float(cell) for cell in columns["FLOPs"]]
    assert flops[-1] == pytest.approx(6 * sum(flops[:-2]), rel=0.05)
    assert columns["one core here"][-1] == hours(24 * SECONDS * BASE.training.steps * BASE.training.batch_size)
    minutes = [float(cell.split()[0]) for cell in columns["2 TFLOP/s"]]
    assert minutes[-1] == pytest.approx(6 * sum(minutes[:-2]), abs=2)


def test_durations_are_hours_from_an_hour_on():
    assert [hours(s) for s in (90.0, 3599.0, 3600.0, 9000.0)] == ["1.5 min", "60.0 min", "1.0 h", "2.5 h"]


def test_the_plan_of_the_papers_preset_says_that_its_seeds_are_ours(monkeypatch):
    monkeypatch.setattr(module, "seconds_per_row", lambda model, training: SECONDS)
    assert estimate(["lm-main"], PRESETS["paper"], None).caption == "5 seeds are ours, the paper had 2"
    assert estimate(["lm-main"], PRESETS["paper"].with_seeds(2), None).caption is None
    assert estimate(["lm-main"], PRESET, None).caption is None


def test_the_plan_of_a_tournament_says_that_the_costliest_forms_are_assumed_to_go_on(monkeypatch):
    monkeypatch.setattr(module, "seconds_per_row", lambda model, training: SECONDS)
    preset = PRESETS["forms"]
    said = "assumed of lm-forms: the costliest forms go on, as many as may, and time goes with FLOPs"
    assert estimate(preset.experiments, preset, None).caption == said
    assert estimate(["lm-main"], preset, None).caption is None


CORE_FLOPS = {"standard": 5.0e10, "boosted": 4.4e10}  # per second: steps of 0.20 and 0.30 s at width 64, docs/log.md
BUDGET = 22 * 3600  # of a core


class Clock:
    """Step times that go with the FLOPs of a model."""

    def per_row(self, model, training):
        sustained = CORE_FLOPS["standard" if model.attention == "standard" else "boosted"]
        return 3 * model.flops() * model.max_len / sustained


def test_the_arena_fits_its_budget_even_if_the_pilot_asks_for_the_most():
    arena = PRESETS["arena"]
    trials = [t for t in all_trials(arena.experiments, assumed(arena)) if {"training", "data"} <= t.config.keys()]
    seconds = [taken(trial, Clock()).seconds for trial in trials]
    assert 0.5 * BUDGET < sum(seconds) <= BUDGET
    assert max(seconds) < 3600


def test_every_experiment_is_charged_for_what_it_adds():
    names = ["lm-main", "lm-convergence", "lm-kv-source"]
    added = {name: len(trials) for name, trials in by_experiment(names, PRESET).items()}
    assert added == {"lm-main": 24, "lm-convergence": 1, "lm-kv-source": 12}  # step times


def test_evaluations_are_counted_where_their_text_has_a_known_length():
    clock, small = Clock(), replace(PRESET, text=replace(PRESET.text, data={"held_out_tokens": 128_000}))
    plain, evaluated = (taken(all_trials(["lm-main"], p)[0], clock) for p in (PRESET, small))
    more = evaluated.seconds - plain.seconds
    assert more == pytest.approx(clock.per_row(plain.model, None) * (13 + 2) * 1000 / 3)


def test_the_sum_is_given_for_the_most_and_the_fewest_seeds(monkeypatch):
    monkeypatch.setattr(module, "seconds_per_row", lambda model, training: SECONDS)
    arena = PRESETS["arena"]
    table = estimate(["lm-pilot", "lm-main"], arena, tflops=None)
    columns = {column.header: list(column.cells) for column in table.columns}
    most, fewest = (int(cell) for cell in columns["trainings"][-2:])
    assert most - fewest == 2 * (16 - 8)
    assert columns["model"][-1] == "all, if the pilot asks for no more seeds"


def test_what_was_planned_and_what_was_spent_stand_side_by_side(monkeypatch, tmp_path):
    """Of three finished trainings one is from a version that did not measure the processor's time."""
    monkeypatch.setattr(module, "seconds_per_row", lambda model, training: SECONDS)
    assert spent_on(["lm-main"], PRESET, tmp_path) == []
    for trial, cpu_seconds in zip(trainings(["lm-main"], PRESET), (3600.0, 5400.0, None), strict=False):
        (tmp_path / FOLDER / trial.key).mkdir(parents=True)
        write_record(tmp_path / FOLDER / trial.key, trial, {}, 9999.0, cpu_seconds)
    spent = spent_on(["lm-main"], PRESET, tmp_path)
    assert [seconds for _, seconds in spent] == [3600.0, 5400.0]
    table = estimate(["lm-main"], PRESET, tflops=2.0, spent=spent)
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    one = SECONDS * BASE.training.steps * BASE.training.batch_size
    planned, took = rows[-2:]
    assert (planned[0], planned[1], planned[6]) == ("finished, as planned", "2", hours(2 * one))
    assert (took[0], took[1], took[6]) == ("finished, as spent", "2", "2.5 h")
