"""The fine-tuning experiment: rates and table from losses made by hand; and at its smallest, where every arm runs."""

import json
import math
from dataclasses import replace

import pytest

from boosted_attention.chart import names
from boosted_attention.cli.main import COMMANDS
from boosted_attention.lab.decisions import settled
from boosted_attention.lab.experiments import DEFAULT
from boosted_attention.lab.experiments import _finetunings as finetuning
from boosted_attention.lab.experiments._finetunings import (
    AS_IT_WAS,
    EVERYTHING,
    FULL,
    LARGE_LORA,
    LIGHT,
    LORA,
    LOW_RANK,
    SHARED,
    arms,
    arms_on,
    at_rate,
    decoding,
    learned,
    seeds,
    sweep_trial,
    timing,
    trials,
    tuning,
    untouched,
    watched,
)
from boosted_attention.lab.experiments.finetune import COMPARED, EXPERIMENT, OVER_LORA, SECONDARY
from boosted_attention.lab.judging.table import render
from boosted_attention.lab.presets import PRESETS, THIRDS
from boosted_attention.lab.reproduce import all_trials, reproduce
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.finetune import (
    DecodeCosts,
    FinetunePoint,
    FinetuneResult,
    MemoryUse,
    TextLoss,
    UntouchedResult,
)
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.statistics import t_quantile
from boosted_attention.storage.sealing import write_sealed
from boosted_attention.validation import InputError
from tests.lab.experiments.made import SEEDS, TEXT, WILD, check, minus, of_key, row, verdicts
from tests.text import sample_text

FIRST, SECOND, OTHER = "stdlib", "wikitext-2", "enwik8-clean"
THREE_TEXTS = TEXT.with_corpora((FIRST, SECOND, OTHER))
PRESET = settled(replace(THREE_TEXTS, finetune=replace(TEXT.finetune, n_seeds=3)), of_key({}))
TUNED = replace(PRESET, finetune=replace(PRESET.finetune, rates=THIRDS))
LOSSES = {
    FULL: (3.0, 3.1, 3.2),
    LOW_RANK: (3.3, 3.5, 3.6),
    SHARED: (3.4, 3.6, 3.5),
    LORA: (3.6, 3.9, 3.8),
    LARGE_LORA: (3.5, 3.7, 3.9),
    EVERYTHING: (3.6, 3.9, 3.7),
}
ONE_MORE = {arm: tuple(2 * loss for loss in losses) for arm, losses in LOSSES.items()}  # on the second text


def made(first=LOSSES, second=ONE_MORE, preset=PRESET):
    """Losses on texts that are learned, by arm; on the other one they are 1 more, and trained parameters tell the arm.

    None in the place of a loss is a training that diverged; an arm that is not named is not there.
    """
    windows = {FIRST: [4.0, 4.2], SECOND: [5.0, 5.2], OTHER: [4.5, 4.9]}
    texts = {text: TextLoss(loss=sum(own) / 2, windows=own) for text, own in windows.items()}
    order = list(arms(preset))
    known = {
        untouched(preset).key: UntouchedResult(texts=texts, data={text: f"data of {text}" for text in texts}),
        timing(preset).key: StepRatios(measured={arm: 1 + order.index(arm) / 10 for arm in order}),
        decoding(preset).key: DecodeCosts(
            cache_bytes={AS_IT_WAS: 500, **{arm: 1000 * (order.index(arm) + 1) for arm in order}},
            measured={AS_IT_WAS: 1.0, **{arm: 2 + order.index(arm) / 10 for arm in order}},
            measured_quartiles={LORA: (2.2, 2.45)},
        ),
    }
    for text, losses in ((FIRST, first), (SECOND, second)):
        for name in set(arms_on(preset, text)) & losses.keys():
            for n, seed in enumerate(seeds(preset)):
                loss = losses[name][n]
                known[tuning(preset, name, text, seed).key] = (
                    replace(WILD, data=f"data of {text}")
                    if loss is None
                    else FinetuneResult(
                        new=loss,
                        watched=loss + 1,
                        trained_parameters=1_000_000 * (order.index(name) + 1),
                        parameters=9,
                        flops_per_token=9,
                        rank=4 if "LoRA" in name else None,
                        data=f"data of {text}",
                        measured=MemoryUse(peak_memory=2_000_000_000 + n * 1_000_000_000),
                    )
                )
    return of_key(known)


def table_of(*losses):
    return EXPERIMENT.table(PRESET, made(*losses))


def test_the_last_text_is_watched_and_those_before_it_learned():
    assert (learned(PRESET), watched(PRESET)) == ((FIRST, SECOND), OTHER)
    assert (learned(PRESET.with_corpora([FIRST])), watched(PRESET.with_corpora([FIRST]))) == ((FIRST,), None)
    assert arms_on(PRESET, FIRST) == list(arms(PRESET))
    assert arms_on(PRESET, SECOND) == list(LIGHT)


def test_the_table_compares_losses_of_the_new_texts():
    table = table_of()
    for text, losses in ((FIRST, LOSSES), (SECOND, ONE_MORE)):
        own = [versus for versus in COMPARED if {versus.a, versus.b} <= set(arms_on(PRESET, text))]
        check(table, {v.quantity.on(text): minus(losses[v.a], losses[v.b]) for v in own})
        for arm in arms_on(PRESET, text):
            i = list(arms(PRESET)).index(arm)
            new, other = (sum(math.exp(loss + more) for loss in losses[arm]) / 3 for more in (0, 1))
            expected = [new, other, i + 1, 1 + i / 10, 2 + i / 10, i + 1, 3.0]
            assert row(table, f"{arm} | {text}") == expected
    assert "ranks: light corrections 4; LoRA 4;" in table.notes[0]
    assert (
        f"Decoded tokens, median and quartiles of {PRESET.finetune.timed_steps} turns: {LORA} 2.300 [2.200, 2.450]."
        in table.notes
    )
    assert not any(note.startswith("Training steps, median") for note in table.notes)  # these were not kept
    left_out = [v.quantity.on(SECOND) for v in COMPARED if not {v.a, v.b} <= set(LIGHT)]
    assert set(table.missing) == set(left_out) != set()


def test_the_model_as_it_was_has_an_interval_over_windows_of_text():
    table = table_of()
    assert row(table, f"{AS_IT_WAS} | {FIRST}") == [math.exp(4.1), math.exp(4.7), None, None, 1.0, 0.5, None]
    first = table.rows[f"{AS_IT_WAS} | {FIRST}"][0].ours
    half = t_quantile(1) * 0.1
    assert (first.low, first.high) == pytest.approx((math.exp(4.1 - half), math.exp(4.1 + half)))


def test_lora_that_learns_more_contradicts_the_primary_claim():
    assert set(verdicts(EXPERIMENT, table_of(), FIRST).values()) == {"reproduced"}
    found = verdicts(EXPERIMENT, table_of({**LOSSES, LORA: (1.0, 1.2, 1.1)}), FIRST)
    lost = {"finetune-shared", "finetune-low-rank", "finetune-forgetting"}
    assert {id for id, verdict in found.items() if verdict == "contradicted"} == lost
    assert set(verdicts(EXPERIMENT, table_of(), SECOND)) >= lost


@pytest.mark.parametrize(("rival", "claim"), [(LARGE_LORA, "finetune-lora"), (EVERYTHING, "finetune-everything")])
def test_a_rival_that_learns_more_contradicts_its_claim(rival, claim):
    found = verdicts(EXPERIMENT, table_of({**LOSSES, rival: (1.0, 1.2, 1.1)}), FIRST)
    assert [id for id, verdict in found.items() if verdict == "contradicted"] == [claim]


def test_what_diverged_and_what_was_not_run_is_said():
    table = table_of({**LOSSES, LARGE_LORA: (3.0, None, 3.0)}, {SHARED: (1.0, 2.0, 3.0)})
    assert table.failed == {SECONDARY["lora"].quantity.on(FIRST): f"{LARGE_LORA} diverged"}
    assert f"{LARGE_LORA} | {FIRST}" not in table.rows
    assert any("seed 123: step 7: loss NaN" in note for note in table.notes)
    assert table.missing[OVER_LORA.quantity.on(SECOND)] == "not run: LoRA"
    assert f"{SHARED} | {SECOND}" in table.rows


def test_one_text_leaves_forgetting_open():
    alone = PRESET.with_corpora([FIRST])
    table = EXPERIMENT.table(alone, made(preset=alone))
    assert table.missing == {SECONDARY["forgetting"].quantity.on(FIRST): "there is no other text"}
    assert row(table, SHARED)[0] is not None


def test_the_figure_has_every_arm_of_both_texts():
    table = table_of()
    figure = EXPERIMENT.figure(PRESET, table, made())
    assert names(figure) == list(arms(PRESET))
    assert [len(panel.series) for panel in figure.panels] == [6, 6, 3, 3]
    shared = next(s for s in figure.panels[1].series if s.name == SHARED)
    assert (shared.x, shared.y) == ([3.0], [pytest.approx(sum(map(math.exp, LOSSES[SHARED])) / 3)])
    assert [panel.title for panel in figure.panels][1:3] == ["stdlib (60.3 as it was)", "wikitext-2 (164.0 as it was)"]


def swept(curves, data=f"data of {FIRST}"):
    """Results of sweeps on one text: validation perplexities by arm and factor."""
    return of_key(
        {
            sweep_trial(TUNED, name, factor).key: FinetunePoint(
                loss=None if value is None else math.log(value), diverged=None if value else "step 2", data=data
            )
            for name, points in curves.items()
            for factor, value in points.items()
        }
    )


def test_rates_are_tried_in_factors_of_three_on_the_first_text_with_a_seed_of_their_own():
    found = [t for t in trials(settled(TUNED, of_key({}))) if t.work == "finetune.sweep"]
    assert len(found) == 3 * len(LOSSES)
    assert {(t.config["corpus"], t.config["seed"]) for t in found} == {(FIRST, TUNED.text.sweep_seed)}
    assert TUNED.text.sweep_seed not in SEEDS
    rates = sorted(t.config["arm"]["lr"] for t in found if "shared" in str(t.config["arm"].get("boost")))
    assert rates == [at_rate({"lr": 1e-3}, f)["lr"] for f in THIRDS] == [0.000333333, 0.001, 0.003]


def test_an_arm_is_trained_once_its_best_rate_lies_inside():
    low, middle, high = THIRDS
    inside = {low: 40.0, middle: 36.0, high: 38.0}
    at_edge = {low: 40.0, middle: 36.0, high: 34.0}
    known = swept({FULL: inside, LOW_RANK: at_edge, SHARED: {**at_edge, 9.0: None}, LORA: {low: 40.0, middle: 36.0}})
    preset = settled(TUNED, known)
    assert preset.finetune.decided.rates == {FULL: middle, SHARED: high}
    assert preset.finetune.decided.grids[LOW_RANK] == (*THIRDS, 9.0)
    assert preset.finetune.decided.grids[LORA] == THIRDS
    trained = [t for t in trials(preset) if t.work == "finetune.train"]
    of_text = [(t.group, t.config["corpus"]) for t in trained]
    assert sorted(set(of_text)) == [(FULL, FIRST), (SHARED, FIRST), (SHARED, SECOND)]
    assert {t.config["arm"]["lr"] for t in trained if t.group == SHARED} == {0.003}
    assert len(trained) == 3 * len(SEEDS)


def test_the_table_says_which_rates_were_tried():
    points = {name: dict(zip(THIRDS, (40.0, 36.0, 38.0), strict=True)) for name in arms(TUNED)}
    sweeps = swept({**points, SHARED: {**points[SHARED], 3.0: None}})
    preset = settled(TUNED, sweeps)
    arms_made = made(preset=preset)

    def both(trial: Trial):
        return sweeps(trial) if trial.work == "finetune.sweep" else arms_made(trial)

    notes = "\n".join(EXPERIMENT.table(preset, both).notes)
    assert f"{FULL}: validation perplexity by learning rate, seed 31: 3.3e-05 40.000, 0.0001 36.000" in notes
    assert "0.001 36.000, 0.003 diverged; taken 0.001 (of two" in notes
    assert "at the edge" not in notes


def test_results_on_different_texts_are_not_compared():
    points = {name: dict(zip(THIRDS, (40.0, 36.0, 38.0), strict=True)) for name in arms(TUNED)}
    sweeps = swept(points, data="another")
    preset = settled(TUNED, sweeps)
    arms_made = made(preset=preset)
    with pytest.raises(InputError, match=r"results on stdlib are of different texts .* another: rates of everything"):
        EXPERIMENT.table(preset, lambda t: sweeps(t) if t.work == "finetune.sweep" else arms_made(t))
    right = made()

    def one_is_of_another(trial: Trial):
        found = right(trial)
        return {**found, "data": "another"} if trial.group == LORA and trial.config["corpus"] == SECOND else found

    with pytest.raises(InputError, match=r"wikitext-2 .* data of wikitext-2: .*; another: LoRA"):
        EXPERIMENT.table(PRESET, one_is_of_another)


def test_every_arm(text_file, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(sample_text(5_000, seed=3))
    preset = PRESETS["smoke"].with_corpora([f"text:{text_file}", f"text:{other}"]).with_seeds(1)
    found = reproduce(["finetune"], preset, tmp_path / "out", workers=2)
    assert not found.outcome.failures
    assert not found.incomplete
    results = {t.group: found.outcome.result(t) for t in all_trials(["finetune"], found.preset) if t.group}
    table = found.tables["finetune"]
    assert set(table.rows) == {AS_IT_WAS, *results} == {AS_IT_WAS, *LOSSES}
    assert "a tiny random Llama" in table.notes[0]
    before = found.outcome.result(untouched(preset))["texts"]
    new, watched = (before[corpus]["loss"] for corpus in preset.text.corpora)
    assert all(result["new"] != new and result["watched"] != watched for result in results.values())
    assert len({result["data"] for result in results.values()}) == 1
    lora, full = results[LARGE_LORA], results[FULL]
    assert abs(lora["trained_parameters"] / full["trained_parameters"] - 1) < 0.1
    assert results[EVERYTHING]["trained_parameters"] == results[EVERYTHING]["parameters"]
    assert results[SHARED]["trained_parameters"] < results[LOW_RANK]["trained_parameters"] < full["trained_parameters"]
    cache = found.outcome.result(decoding(preset))["cache_bytes"]
    assert cache[SHARED] == cache[LORA] == cache[EVERYTHING] == cache[AS_IT_WAS]
    assert cache[FULL] == cache[LOW_RANK] == 2 * cache[AS_IT_WAS]
    assert render(table) in (tmp_path / "out" / "tables.md").read_text()
    path = tmp_path / "out" / "trials" / tuning(found.preset, LORA, preset.text.corpora[0], 42).key / "result.json"
    record = json.loads(path.read_text())
    record["versions"]["torch"] = "9.9"
    write_sealed(path, record)
    with pytest.raises(InputError, match=r"mixes results of different versions: torch 9\.9: finetune\.train-"):
        reproduce(["finetune"], preset, tmp_path / "out", workers=2)


def test_it_is_not_run_unasked():
    assert "finetune" not in DEFAULT
    assert {"boost", "finetune", "export"} <= set(COMMANDS)
    assert seeds(PRESETS["cpu"]) == (42, 123, 7)
    assert seeds(PRESETS["cpu"].with_seeds(2)) == (42, 123)
    assert finetuning.sweeps(PRESETS["cpu"])
    assert not finetuning.sweeps(PRESETS["smoke"])
