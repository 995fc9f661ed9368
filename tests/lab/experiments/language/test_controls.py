"""Controls of the language model, from perplexities made by hand."""

import statistics
from dataclasses import replace

import pytest

from boosted_attention.lab.experiments.language import controls
from boosted_attention.lab.experiments.language._arms import TUNED, matched_arm
from boosted_attention.lab.experiments.language.controls import COMBINED, EXPERIMENT, OVER, RIVALS, TIMED, timed
from boosted_attention.lab.presets import Decided
from boosted_attention.lab.work.language import NearestInTime, TimeMatched
from tests.lab.experiments.made import TEXT, WILD, check, language_result, percent, row, text_results, verdicts

BOOSTED = (60.0, 61.0, 62.0)
VALUES = {"boosted": BOOSTED} | {rival: (70.0 + i, 71.5 + i, 71.0 + i) for i, rival in enumerate(RIVALS)}
VALUES["boosted-differential"] = (50.0, 51.5, 51.0)  # better than either alone
EQUAL_FLOPS = matched_arm(TEXT, {"attention": "boosted"}, "flops")
NAMED = {  # a standard model by what differs from the preset's
    ("n_layers", 5): "one more layer",
    ("n_heads", 4): "twice the heads",
}


def arm_of(options):
    attention, others = options["attention"], {k: v for k, v in options.items() if k != "attention"}
    if attention == "twicing" and others:
        assert others == {"boosted_layers": "last:2"}  # half of four
        return "twicing in the last layers"
    if attention == "boosted-shared":
        return "shared K/V"
    if attention != "standard" or not others:
        return attention
    (item, *more) = others.items()
    if item in NAMED and not more:
        return NAMED[item]
    return "FLOP-matched width" if options == EQUAL_FLOPS else "param-fair"


def made(values=VALUES, without=(), trained=True, wild=()):
    def result(corpus, options, i):
        arm = arm_of(options)
        return None if arm in without else language_result(values[arm][i] + 10 * TEXT.text.corpora.index(corpus))

    others = {}
    for n, corpus in enumerate(TEXT.text.corpora):
        for i, seed in enumerate(TEXT.text.seeds):
            model = language_result(values[TIMED][i] + 10 * n, data=corpus, order=f"{seed}, 3")
            nearest = NearestInTime(width=20, step_time=1.04)
            others[timed(TEXT, corpus, seed).key] = TimeMatched(measured=nearest, trained=model if trained else None)
    others |= {timed(TEXT, corpus, seed).key: WILD for corpus, seed in wild}
    return EXPERIMENT.table(TEXT, text_results(TEXT, result, {} if TIMED in without else others))


def test_boosted_is_compared_with_every_rival():
    table = made()
    for n, text in enumerate(TEXT.text.corpora):
        more = {arm: [v + 10 * n for v in own] for arm, own in VALUES.items()}
        check(table, {OVER[rival].quantity.on(text): percent(more["boosted"], more[rival]) for rival in RIVALS})
        for arm, own in more.items():
            assert row(table, f"{arm} | {text}")[:2] == [sum(own) / 3, sum(own) / 3 + 1000]
    assert not table.missing
    assert "the time-matched standard model has d_model=20 and takes 1.04 of the time" in table.notes[-1]


def test_the_eight_arms_that_are_tuned_stand_in_one_table():
    table = made()
    assert {f"{arm} | stdlib" for arm in TUNED} <= set(table.rows)
    assert len(TUNED) == 8


def test_the_time_matched_standard_model_trains_at_the_standard_models_rate():
    """Its trial names no arm: the layer is the recipe's, boosted, until the width is chosen."""
    rates = {"standard": 2.0, "boosted": 0.5}
    decided = Decided(rates={TEXT.text.recipe: rates})
    tuned = replace(TEXT, text=replace(TEXT.text, tuned=True, decided=decided))
    lr = TEXT.text.configuration().training.lr
    assert timed(tuned, "stdlib", 42).config["training"]["lr"] == pytest.approx(2.0 * lr)
    assert timed(TEXT, "stdlib", 42).config["training"]["lr"] == lr


def test_what_was_not_run_is_said_and_the_rest_is_shown():
    table = made(without=("FLOP-matched width", TIMED))
    text = TEXT.text.corpora[0]
    assert table.missing[OVER["FLOP-matched width"].quantity.on(text)] == "FLOP-matched width was not run"
    assert OVER["parallel"].quantity.on(text) in table.quantities
    found = verdicts(EXPERIMENT, table, text)
    assert {id for id, verdict in found.items() if verdict != "reproduced"} == {"lm-flops"}
    assert found["lm-flops"] == "not run"


def test_rivals_are_trained_one_after_the_other():
    """Those of the title's question first."""
    labels = [trial.label.split(",")[0] for trial in sorted(EXPERIMENT.trials(TEXT), key=lambda t: t.turn)]
    trained = [label for label in dict.fromkeys(labels) if label in RIVALS]
    assert trained == list(RIVALS)
    assert trained[:4] == ["standard", "twicing", "param-fair", "parallel"]


def test_no_model_in_time_is_said():
    table = made(trained=False)
    assert OVER[TIMED].quantity.on("stdlib") in table.missing
    assert "no standard model takes the time of a boosted step (the nearest, d_model=20, takes 1.04)" in table.notes[-1]


@pytest.mark.parametrize("seeds", [TEXT.text.seeds[1:2], TEXT.text.seeds])
def test_a_time_matched_model_that_diverged_fails_on_its_text_alone(seeds):
    table = made(wild=[("stdlib", seed) for seed in seeds])
    assert table.failed == {OVER[TIMED].quantity.on("stdlib"): f"{TIMED} diverged"}
    assert not table.missing
    assert f"{TIMED} | stdlib" not in table.rows
    assert f"{TIMED} | wikitext-103" in table.rows
    assert any(f"stdlib, {TIMED} diverged and has no row: seed {seeds[0]}: step 7" in note for note in table.notes)


@pytest.mark.parametrize(("rival", "claim"), [("parallel", "lm-residual"), ("FLOP-matched width", "lm-flops")])
def test_a_rival_that_wins_contradicts_its_claim(rival, claim):
    found = verdicts(EXPERIMENT, made({**VALUES, rival: (50.0, 50.5, 51.0)}), "stdlib")
    assert [id for id, verdict in found.items() if verdict == "contradicted"] == [claim]
    assert set(found.values()) == {"contradicted", "reproduced"}


def test_differences_are_drawn_against_zero_with_the_papers_beside_them():
    assert EXPERIMENT.figure is not None
    figure = EXPERIMENT.figure(TEXT, made(), lambda trial: {}[trial.key])
    assert [panel.levels for panel in figure.panels] == [{"no difference": 0.0}] * 2
    ours, paper = figure.panels[0].series
    assert list((figure.panels[0].ticks or {}).values()) == list(RIVALS)
    assert list(ours.y) == pytest.approx([statistics.mean(percent(BOOSTED, VALUES[rival])) for rival in RIVALS])
    assert (list(paper.x), list(paper.y)) == ([0, 1, 2], [-6.0, -2.4, -1.6])  # standard, twicing, equal parameters


def test_a_table_without_a_time_matched_arm_says_so(language_smoke, text_preset):
    """What the clock says is not in our hands: where no width takes the time of a boosted step, the table says so."""
    found, _ = language_smoke
    timed = {controls.timed(text_preset, text_preset.text.corpora[0], seed).key for seed in text_preset.text.seeds}
    none = {"measured": {"width": 20, "step_time": 0.82}, "trained": None}
    table = controls.collect(text_preset, lambda t: none if t.key in timed else found.outcome.result(t))
    assert controls.TIMED not in table.rows
    assert "no standard model takes the time of a boosted step (the nearest, d_model=20, takes 0.82)" in table.notes[-1]
    assert controls.OVER[controls.PARALLEL].quantity.on("text:words.txt") in table.quantities
    assert controls.OVER[controls.TIMED].quantity.on("text:words.txt") in table.missing


def test_a_combination_must_beat_both_of_its_parts():
    table = made({**VALUES, "boosted-differential": (65.0, 66.5, 66.0)})
    check(table, {COMBINED.quantity.on("stdlib"): percent((65.0, 66.5, 66.0), VALUES["differential-v2"])})
    found = verdicts(EXPERIMENT, table, "stdlib")
    assert (found["lm-combined-boosted"], found["lm-combined-differential"]) == ("contradicted", "reproduced")
