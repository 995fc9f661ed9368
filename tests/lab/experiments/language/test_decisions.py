"""What results decide: rates, seeds of the pilot's pair, steps of equal time; each by rule, once it is known."""

from dataclasses import replace

import pytest

from boosted_attention.lab.experiments._grid import LARGEST_GRID
from boosted_attention.lab.experiments.language import equal_cost, main, pilot, scale
from boosted_attention.lab.experiments.language._arms import (
    BOOSTED,
    FAIR,
    PLAIN,
    RELATIVES,
    STANDARD,
    TUNED,
    all_arms,
    name_of,
    rate_of,
    seeds_of,
    tuned_as,
)
from boosted_attention.lab.experiments.language._decisions import assumed, settled
from boosted_attention.lab.experiments.language._trials import training_trial
from boosted_attention.lab.presets import PAIR, PRESETS, UndecidedError
from boosted_attention.lab.reproduce import all_trials
from boosted_attention.lab.work.language import Diverged
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import to_json
from tests.lab.experiments.language.arena import ARENA, SMALL, results_of, swept
from tests.lab.experiments.made import language_result

INSIDE = {0.5: 40.0, 1.0: 36.0, 2.0: 38.0}
TEXT, ELSEWHERE = SMALL.text.corpora


def test_a_rate_is_decided_once_the_best_lies_inside():
    waiting = {0.5: 40.0, 1.0: 36.0}
    at_edge = {0.5: 40.0, 1.0: 36.0, 2.0: 35.0}
    curves = {STANDARD: INSIDE, BOOSTED: at_edge, FAIR: waiting, "parallel": {**at_edge, 4.0: 39.0}}
    decided = settled(SMALL, results_of(swept(SMALL, curves))).text.decided
    assert decided.rates["arena"] == {STANDARD: 1.0, "parallel": 2.0}
    assert decided.grids["arena"][BOOSTED] == (0.5, 1.0, 2.0, 4.0)
    assert decided.grids["arena"][FAIR] == (0.5, 1.0, 2.0)
    assert decided.rates["arena-128"] == {}
    assert (decided.pair_seeds, decided.step_times) == (None, {})


def test_an_arm_that_diverges_at_every_rate_is_trained_at_the_smallest_and_shown():
    nothing = dict.fromkeys([2.0**i for i in range(1, 1 - LARGEST_GRID, -1)])
    decided = settled(SMALL, results_of(swept(SMALL, {STANDARD: nothing}))).text.decided
    assert decided.rates["arena"] == {STANDARD: min(nothing)}


def tuned(**changes):
    """The small arena with every rate decided, and results of its sweeps."""
    at_128 = SMALL.at(SMALL.text.sizes[0])
    curves = dict.fromkeys(TUNED, INSIDE) | {BOOSTED: {0.25: 39.0, 0.5: 35.0, 1.0: 36.0, 2.0: 38.0}}
    known = swept(SMALL, curves) | swept(at_128, dict.fromkeys(PAIR, INSIDE))
    return known | changes


def test_trials_wait_for_what_decides_them():
    assert {t.work for t in all_trials(["lm-main"], SMALL)} == {"language.sweep"}
    with pytest.raises(UndecidedError, match="lm-sweep decides it"):
        main.trials(SMALL)
    now = settled(SMALL, results_of(tuned()))
    assert now.text.decided.rates["arena"] == {**dict.fromkeys(TUNED, 1.0), BOOSTED: 0.5}
    assert now.text.decided.rates["arena-128"] == dict.fromkeys(PAIR, 1.0)
    asked = all_trials(["lm-main"], now)
    assert {t.group for t in asked} == {"boosted, pilot", "param-fair, pilot"}
    assert {t.config["training"]["seed"] for t in asked} == set(SMALL.text.pilot.seeds)


def pilot_results(now, differences):
    """Results of the pilot in which the boosted model is so many percent worse, seed by seed."""
    known = {}
    for seed, apart in zip(now.text.pilot.seeds, differences, strict=True):
        for name, factor in ((BOOSTED, 1 + apart / 100), (FAIR, 1.0)):
            known[pilot.trials_by_seed(now, name)[seed].key] = to_json(language_result(50.0 * factor))
    return known


@pytest.mark.parametrize(("differences", "seeds"), [((1.0, 1.01), 2), ((0.0, 9.0), 3)])
def test_the_pilots_scatter_decides_the_seeds_of_the_pair_alone(differences, seeds):
    known = tuned()
    known |= pilot_results(settled(SMALL, results_of(known)), differences)
    now = settled(SMALL, results_of(known))
    assert now.text.decided.pair_seeds == seeds
    arms = all_arms(now)
    for name in PAIR:
        assert seeds_of(now, TEXT, arms[name]) == SMALL.text.seeds[:seeds]
        assert seeds_of(now, ELSEWHERE, arms[name]) == SMALL.text.seeds[:1]
    assert seeds_of(now, TEXT, arms[STANDARD]) == SMALL.text.seeds[:2]
    assert seeds_of(now, ELSEWHERE, arms[STANDARD]) == ()
    assert seeds_of(now, TEXT, arms["twice the heads"]) == ()  # not named
    trained = [t for t in main.trials(now) if t.group == BOOSTED]
    base = now.text.configuration().training
    assert {t.config["training"]["lr"] for t in trained} == {base.lr * 0.5}


@pytest.mark.parametrize(("std", "seeds"), [(0.1, 8), (1.0, 8), (1.4, 9), (1.6, 12), (2.0, 16), (9.0, 16), (None, 16)])
def test_seeds_asked_lie_between_eight_and_sixteen(std, seeds):
    """An effect of 1.5 % at 80 % power: 1.4 % of scatter need 9 paired seeds, 1.6 % need 12."""
    found = None if std is None else pilot.estimate([-std / 2**0.5, std / 2**0.5])
    assert pilot.seeds_asked(ARENA.text.pilot, 8, found) == seeds


def test_a_pilot_that_diverges_asks_for_the_most():
    known = tuned()
    now = settled(SMALL, results_of(known))
    known |= pilot_results(now, (0.0, 0.0))
    known[pilot.trials_by_seed(now, BOOSTED)[301].key] = to_json(Diverged(diverged="step 2: loss nan", data="d"))
    assert settled(SMALL, results_of(known)).text.decided.pair_seeds == 3
    assert "A training diverged" in pilot.EXPERIMENT.table(now, results_of(known)).notes[0]


def test_cheaper_models_train_longer_by_the_ratio_of_step_times():
    known = tuned()
    now = settled(SMALL, results_of(known))
    times = {BOOSTED: 1.0, STANDARD: 0.5, FAIR: 0.75}
    known[equal_cost.timings(now).key] = to_json(StepRatios(measured=times))
    now = settled(SMALL, results_of(known))
    assert now.text.decided.step_times == {STANDARD: 0.5, FAIR: 0.75}
    steps = {name: equal_cost.longer(now, TEXT, name) for name in (STANDARD, FAIR)}
    assert [{t.config["training"]["steps"] for t in by.values()} for by in steps.values()] == [{6}, {4}]
    assert {tuple(by) for by in steps.values()} == {SMALL.text.seeds[:1]}
    assert equal_cost.longer(now, ELSEWHERE, STANDARD) == {}


def test_what_is_decided_does_not_depend_on_what_was_decided_before():
    known = results_of(tuned())
    once = settled(SMALL, known)
    assert settled(once, known) == once
    assert settled(assumed(SMALL), known) == once
    plain = PRESETS["smoke"]
    assert settled(plain, known) == plain


def test_every_arm_of_the_arena_has_a_name_and_a_relative_that_is_tuned():
    arms = all_arms(ARENA)
    trained = [name for name in ARENA.text.arms if name not in equal_cost.LONGER.values()]
    assert set(trained) <= set(arms)
    assert {tuned_as(name) for name in trained} <= set(TUNED) <= set(ARENA.text.arms)
    assert {name: name_of(ARENA, arm) for name, arm in arms.items()} == {name: name for name in arms}
    assert set(RELATIVES.values()) <= set(TUNED)
    rates = {name: 2.0 + i for i, name in enumerate(TUNED)}
    decided = replace(ARENA.text.decided, rates={"arena": rates})
    now = replace(ARENA, text=replace(ARENA.text, decided=decided))
    assert rate_of(now, arms["boosted, post"]) == rates[BOOSTED]
    assert rate_of(now, arms["gated"]) == rates[STANDARD]
    assert rate_of(now, {**PLAIN[BOOSTED], "boosted_layers": "last:1"}) == rates[BOOSTED]


def test_seeds_of_the_arena_are_fixed_and_used_for_one_thing():
    text = ARENA.text
    used = [text.seeds, text.reward_seeds, text.pilot.seeds, (text.sweep_seed,)]
    assert len(set().union(*used)) == sum(map(len, used))
    assert {name: text.arms[name] for name in (*PAIR, STANDARD, "parallel")} == dict.fromkeys(
        (*PAIR, STANDARD, "parallel"), 8
    )
    assert {text.arms[name] for name in TUNED} == {8, 5}
    assert {text.arms[n] for n in ("boosted, post", "input K/V", "three rounds", "scalar gate", "differential-v2")} == {
        3
    }
    assert text.arms_elsewhere == dict.fromkeys(PAIR, 5)
    assert (len(text.reward_seeds), len(text.pilot.seeds), text.pilot.most, text.pilot.effect) == (5, 4, 16, 1.5)
    assert text.pilot.effect == main.MARGIN
    assert len(text.seeds) == text.pilot.most


def test_the_important_begins_first():
    """What the arena rewards, the sweep, the pilot, the main table; the other text comes after the further size."""
    ranks = {}
    for trial in all_trials(ARENA.experiments, assumed(ARENA)):
        corpus = trial.config.get("data", {}).get("corpus")
        label = (
            corpus if corpus == ELSEWHERE else trial.group.partition(",")[0] if trial.work == "language.train" else ""
        )
        ranks.setdefault(label or trial.work, []).append(trial.rank)
    assert max(ranks["half as many layers again"]) < min(ranks["language.sweep"])
    assert min(ranks["language.sweep"]) < min(ranks["twicing"]) < min(ranks["parallel"]) < min(ranks["M=3"])
    assert min(ranks["M=3"]) < min(ranks["matched"]) < min(ranks[ELSEWHERE])


def test_a_further_size_is_swept_before_it_is_trained():
    known = tuned()
    at_64 = settled(SMALL, lambda trial: known[trial.key] if trial.config["model"]["d_model"] != 128 else {}[trial.key])
    waiting = [t for t in scale.trials(at_64) if t.config["model"]["d_model"] >= 128]
    assert {t.work for t in waiting} == {"language.sweep"}
    both = scale.trials(settled(SMALL, results_of(known)))
    widths = {t.config["model"]["d_model"] for t in both if t.work == "language.train" and "boosted" in t.group}
    assert widths == {64, 128}
    trial = training_trial(settled(SMALL, results_of(known)).at(SMALL.text.sizes[0]), TEXT, PLAIN[BOOSTED], 101, "")
    assert trial.key in {t.key for t in both}
