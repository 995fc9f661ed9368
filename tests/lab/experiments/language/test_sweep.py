"""Learning rates: which is chosen, and what is said of a grid that does not hold the best one."""

from dataclasses import replace

import pytest

from boosted_attention.chart import bounds
from boosted_attention.lab.decisions import settled
from boosted_attention.lab.experiments._grid import LARGEST_GRID
from boosted_attention.lab.experiments.language._arms import TUNED as NAMES
from boosted_attention.lab.experiments.language.sweep import (
    AT_BEST,
    AT_SHARED,
    CHOSEN,
    EXPERIMENT,
    arms,
    at_edge,
    at_one_rate,
    finished,
    trials,
)
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.trials.trial import WORKS, Context
from boosted_attention.lab.work.language import BestStep, SweepPoint
from boosted_attention.records import to_json
from boosted_attention.validation import InputError
from tests.lab.experiments.language import arena

SMOKE = PRESETS["smoke"].with_rates((0.5, 1.0, 2.0))
TEXT = SMOKE.text.corpora[0]


def made(perplexity):
    """A point of a sweep; None is a training that diverged."""
    best = perplexity and BestStep(step=3, validation_loss=1.0, validation_perplexity=perplexity)
    return to_json(SweepPoint(best=best, diverged=None if best else "step 2: loss NaN", steps=3, data="d"))


def results_of(perplexities):
    """A sweep in which every arm has these perplexities, by factor."""
    by_key = dict(zip((t.key for t in trials(SMOKE)), [made(p) for _ in NAMES for p in perplexities], strict=True))
    return lambda trial: by_key[trial.key]


def table_of(perplexities):
    return EXPERIMENT.table(SMOKE, results_of(perplexities))


def test_a_sweep_multiplies_every_rate_and_uses_a_seed_of_its_own():
    base = SMOKE.text.configuration().training
    seen = set()
    for trial in trials(SMOKE):
        training = trial.config["training"]
        factor = training["lr"] / base.lr
        seen.add(factor)
        assert training["matrix_lr"] == pytest.approx((base.matrix_lr or 0) * factor)
        assert training["seed"] == SMOKE.text.sweep_seed
    assert seen == {0.5, 1.0, 2.0}
    assert len(trials(SMOKE)) == 3 * len(arms(SMOKE)) == 3 * len(NAMES)


def test_the_seed_of_sweeps_is_that_of_no_other_training():
    used = set()
    for preset in PRESETS.values():
        text = preset.text
        used |= {*text.seeds, *text.reward_seeds, *(text.pilot.seeds if text.pilot else ())}
        if text.tournament:
            used |= {text.tournament.first_seed, *text.tournament.second_seeds, *text.tournament.final_seeds}
    assert {42, 101, 201, 301, 401, 501, 511, 601} <= used
    assert not used & {preset.text.sweep_seed for preset in PRESETS.values()}


def test_the_table_names_the_best_the_diverged_and_the_edge():
    table = table_of((40.0, 36.0, None))
    assert [table.quantities[CHOSEN[name].on(TEXT)].mean for name in NAMES] == [1.0] * len(NAMES)
    assert [cell and cell.ours.mean for cell in table.rows["boosted"]] == [40.0, 36.0, None, 1.0, None, None]
    assert any("standard x 2, " in note for note in table.notes)
    assert any(note.endswith("beyond it: none.") for note in table.notes)
    outside = table_of((40.0, 36.0, 34.0))
    assert any("beyond it: standard, boosted," in note for note in outside.notes)
    nothing = table_of((None, None, None))
    assert nothing.failed[CHOSEN["boosted"].on(TEXT)] == "every training diverged"


def test_a_finished_sweep_whose_best_lies_at_an_edge_is_named_and_others_are_not():
    """A grid that has grown to its end without turning, one that turns, and one of which a point is missing."""
    falling = {0.5 * 2**i: 40.0 - i for i in range(LARGEST_GRID)}
    inside, unfinished = {0.5: 40.0, 1.0: 36.0, 2.0: 38.0}, {0.5: 40.0, 1.0: 36.0}
    results = arena.results_of(
        arena.swept(arena.SMALL, {"boosted": falling, "standard": inside, "twicing": unfinished})
    )
    preset = settled(arena.SMALL, results)
    assert finished(preset) == ["standard", "boosted"]
    assert at_edge(preset, results) == ["boosted"]
    assert finished(SMOKE) == []


def test_what_one_shared_rate_would_have_said_stands_beside_each_at_its_best():
    """Standard is best at x 1, boosted at x 2: there it wins by a tenth, at the standard model's rate it loses."""
    curves = dict.fromkeys(NAMES, (50.0, 40.0, 44.0)) | {"boosted": (60.0, 42.0, 36.0)}
    by_key = dict(zip((t.key for t in trials(SMOKE)), [made(p) for name in NAMES for p in curves[name]], strict=True))
    table = EXPERIMENT.table(SMOKE, lambda trial: by_key[trial.key])
    assert table.quantities[AT_BEST["standard"].on(TEXT)].mean == pytest.approx(-10.0)
    assert table.quantities[AT_SHARED["standard"].on(TEXT)].mean == pytest.approx(5.0)
    assert table.rows["boosted"][-2:] == [None, None]


def test_the_main_table_is_told_what_one_shared_rate_would_have_said():
    """Of the arms whose sweep is finished, on the text of the sweep; nothing where arms are not tuned."""
    standard, boosted = {0.5: 50.0, 1.0: 40.0, 2.0: 44.0}, {0.5: 60.0, 1.0: 42.0, 2.0: 36.0, 4.0: 37.0}
    known = arena.swept(arena.SMALL, {"standard": standard, "boosted": boosted, "twicing": {1.0: 40.0}})
    results = arena.results_of(known)
    preset = settled(arena.SMALL, results)
    first = preset.text.corpora[0]
    (note,) = at_one_rate(preset, results, first)
    assert note.endswith("each at its own best: standard +5.0 (-10.0).")
    assert at_one_rate(preset, results, "another") == at_one_rate(SMOKE, results, TEXT) == []
    alone = arena.results_of(arena.swept(arena.SMALL, {"standard": standard}))
    assert at_one_rate(settled(arena.SMALL, alone), alone, first) == []


def test_a_grid_needs_a_point_on_either_side():
    for rates in ((1.0,), (1.0, 2.0), (1.0, 1.0, 1.0), (-1.0, 1.0, 2.0)):
        with pytest.raises(InputError, match="a sweep needs at least three positive factors"):
            PRESETS["smoke"].with_rates(rates)
    assert PRESETS["smoke"].with_rates(()) == PRESETS["smoke"]


@pytest.mark.parametrize(
    ("points", "level"),
    [
        ((40.0, 36.0, None), "diverged"),
        ((None, None, None), "diverged"),
        ((40.0, 36.0, 38.0), None),
        ((72.0, 36.0, 80.0), "above 72"),
        ((None, 36.0, 72.1), "above 72 or diverged"),
    ],
)
def test_its_figure_shows_what_diverged_or_fell_apart_above_all_others(points, level):
    """A perplexity of more than twice the lowest would flatten the rest."""
    assert EXPERIMENT.figure is not None
    panel = EXPERIMENT.figure(SMOKE, table_of(points), results_of(points)).panels[0]
    curves = [series for series in panel.series if series.style == "line"]
    above = [series for series in panel.series if series.style == "points"]
    by_factor = dict(zip((0.5, 1.0, 2.0), points, strict=True))
    known = [f for f, value in by_factor.items() if value is not None and value <= 72.0]
    lost = [f for f in by_factor if f not in known]
    assert [(series.name, list(series.x)) for series in curves] == ([(name, known) for name in NAMES] if known else [])
    assert [(series.name, list(series.x)) for series in above] == ([(name, lost) for name in NAMES] if lost else [])
    assert list(panel.levels) == ([] if level is None else [level])
    highest = max((by_factor[f] or 0.0 for f in known), default=0.0)
    for series in above:
        assert set(series.y) == set(panel.levels.values())
        assert min(series.y) > highest
    assert bounds(panel)[3] > highest


def test_a_training_that_diverges_is_a_result(tmp_path, text_file):
    preset = replace(SMOKE, text=replace(SMOKE.text, corpora=(f"text:{text_file}",)))
    trial = trials(preset)[0]
    wild = {**trial.config, "training": {**trial.config["training"], "lr": 1e30, "matrix_lr": 1e30}}
    point = WORKS["language.sweep"].perform(Context(folder=tmp_path / "a", shared=tmp_path), **wild)
    assert point["best"] is None
    assert "loss nan" in point["diverged"]
    point = WORKS["language.sweep"].perform(Context(folder=tmp_path / "b", shared=tmp_path), **trial.config)
    assert point["diverged"] is None
    assert point["best"]["validation_perplexity"] > 1
