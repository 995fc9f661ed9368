"""The arena from its first training to its tables, at a size of seconds."""

import json
from dataclasses import replace

import pytest

from boosted_attention.lab.experiments import experiment
from boosted_attention.lab.experiments.language import controls, equal_cost, main, normalization, rewards, scale
from boosted_attention.lab.figures import all_figures
from boosted_attention.lab.presets import PAIR, PRESETS
from boosted_attention.lab.reproduce import all_trials, reproduce, reread, settle, stored_preset, write
from boosted_attention.lab.shipped import language_models, section
from boosted_attention.lab.trials.store import Outcome
from tests.lab.experiments.language.arena import SMALL, write_made
from tests.text import sample_text


@pytest.fixture(scope="session")
def arena(made_once, text_file, tmp_path_factory):
    """(what was found, its folder)."""
    more = tmp_path_factory.getbasetemp() / "more.txt"
    more.write_text(sample_text(20_000, seed=7))
    preset = SMALL.with_corpora([f"text:{text_file}", f"text:{more}"])

    def make(out):
        found = reproduce(list(preset.experiments), preset, out, workers=2)
        assert not found.outcome.failures
        assert not found.incomplete

    out = made_once("arena", make)
    return reread(stored_preset(out), out), out


def test_every_experiment_of_the_preset_yields_a_table_and_its_figure(arena):
    found, out = arena
    assert set(PRESETS["arena"].experiments) == set(found.tables)
    figures = {figure.name: figure for figure in all_figures(found, found.preset)}
    assert {"rewards", "sweep", "differences", "scale", "pareto", "convergence", "results"} <= set(figures)
    assert all(figure.panels for figure in figures.values())
    assert "### arena" in section("arena", out)


def test_decisions_are_written_down_and_follow_from_the_records(arena):
    found, out = arena
    written = json.loads((out / "claims.json").read_text())["preset"]["text"]["decided"]
    assert set(written["rates"]["arena"]) == set(written["grids"]["arena"])
    assert written["pair_seeds"] in (2, 3)
    assert set(written["rates"]["arena-128"]) == set(PAIR)
    again = reread(SMALL.with_corpora(found.preset.text.corpora), out)
    assert again.preset == found.preset
    assert [row.verdict for row in again.ledger.rows] == [row.verdict for row in found.ledger.rows]


def test_an_experiment_alone_finds_what_decides_it(arena):
    found, out = arena
    for names in (["lm-kv-source"], ["lm-main"], ["lm-scale"]):
        preset, outcome = settle(names, SMALL.with_corpora(found.preset.text.corpora), out)
        assert preset.text.decided.rates["arena"] == found.preset.text.decided.rates["arena"]
        assert outcome.has(all_trials(names, preset))


def test_nothing_was_trained_that_no_table_uses(arena):
    found, out = arena
    wanted = {trial.key for trial in all_trials(found.preset.experiments, found.preset)}
    assert {path.parent.name for path in out.glob("trials/*/result.json")} == wanted


def test_arms_have_the_seeds_and_the_rates_that_were_fixed(arena):
    found, _ = arena
    decided, main = found.preset.text.decided, found.tables["lm-main"]
    first, second = main.places
    counts = {str(c.quantity): c.difference.n for c in main.comparisons}
    assert counts[f"boosted - param-fair | {first}"] == decided.pair_seeds
    assert counts[f"boosted - standard | {first}"] == 2
    assert counts[f"boosted - param-fair | {second}"] == 1
    missing = {str(q): why for q, why in main.missing.items()}
    assert missing[f"boosted - standard | {second}"] == "standard was not run"
    rates = decided.rates["arena"]
    note = next(n for n in found.tables["lm-normalization"].notes if "boosted, post" in n and "factor" in n)
    assert f"boosted, post 1 (x {rates['boosted']:g}, that of boosted)" in note
    assert f"boosted {decided.pair_seeds} (x {rates['boosted']:g})" in note
    assert "that the sweep found: " in note
    elsewhere = next(n for n in main.notes if n.startswith(f"{second}: seeds of each arm"))
    assert f"that the sweep found on {first}: " in elsewhere


def test_costs_stand_side_by_side(arena):
    found, _ = arena
    table = found.tables["lm-equal-cost"]
    first = next(iter(table.places))
    assert {r.quantity.on(first) for r in equal_cost.OVER} <= set(table.quantities)
    assert "of which there are 3" in table.notes[-1]
    elastic = found.tables["lm-rewards"]
    assert {q.on(first) for q in rewards.ELASTICITY.values()} <= set(elastic.quantities)
    assert controls.OVER["parallel"].quantity.on(first) in found.tables["lm-controls"].quantities
    assert list(found.tables["lm-scale"].rows) == [f"d={d} | {first}" for d in (64, 128)]
    assert scale.BY_WIDTH.on(first) in found.tables["lm-scale"].quantities


def test_without_the_other_text_the_tables_are_there_already(arena, tmp_path):
    found, out = arena
    (tmp_path / "trials").mkdir()
    second = found.preset.text.corpora[1]
    for path in out.glob("trials/*/result.json"):
        record = json.loads(path.read_text())
        if record["trial"]["config"].get("data", {}).get("corpus") != second:
            (tmp_path / "trials" / path.parent.name).mkdir()
            (tmp_path / "trials" / path.parent.name / "result.json").write_text(path.read_text())
    fewer = reread(found.preset, tmp_path)
    assert set(fewer.tables) == set(found.tables)
    assert not any("more.txt" in label for label in fewer.tables["lm-main"].rows)


def test_a_training_that_diverges_is_shown_and_its_comparisons_failed(arena):
    found, _ = arena
    preset = found.preset
    wild = {t.key for t in all_trials(["lm-normalization"], preset) if t.group == "boosted, post"}
    diverged = {"diverged": "step 2: loss nan", "data": "d"}

    def results(trial):
        return diverged if trial.key in wild else found.outcome.result(trial)

    table = normalization.EXPERIMENT.table(preset, results)
    text = next(iter(table.places))
    assert table.failed[normalization.BOOSTED_POST.quantity.on(text)] == "boosted, post diverged"
    assert any("boosted, post diverged and has no row: seed 101: step 2: loss nan" in note for note in table.notes)
    assert not any(label.startswith("boosted, post") for label in table.rows)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(what was found, its folder): results made by hand, without analyses."""
    out = tmp_path_factory.mktemp("made")
    write_made(SMALL, out)
    found = reread(SMALL, out)
    write(found, found.preset, out)
    return found, out


def test_the_page_has_the_table_of_every_experiment_of_the_preset_with_its_notes(made):
    """Read again from what is written, as the page does: the order of what was decided does not count."""
    found, out = made
    shown = section("arena", out)
    headings = [line.removeprefix("#### ") for line in shown.splitlines() if line.startswith("#### ")]
    assert headings == [experiment(name).title for name in SMALL.experiments if name != "analysis"]
    assert shown.count("All arms share weight decay and batch size.") >= 6
    assert "boosted, post 1 (x 1, that of boosted)" in shown
    assert all(note in shown for table in found.tables.values() for note in table.notes)


def test_the_main_table_is_headed_by_the_training_of_its_own_arms(made):
    """Whatever else was trained, such as twice the tokens, and in whatever order records are met."""
    found, _ = made
    backwards = dict(reversed(found.outcome.records.items()))
    for records in (found.outcome.records, backwards):
        shown = language_models(found.preset, replace(found, outcome=Outcome(records)), "lm-controls")
        head, _, rows = shown.partition("\n")
        assert "**: 3 steps, 0.0 M tokens, the first of seeds 101, 102, 103, data wikitext-2, enwik8-clean, " in head
        assert "| shared K/V, wikitext-2 | " in rows


def test_the_main_table_is_shown_with_the_arms_that_are_whole(tmp_path):
    """Boosted against standard is its question; an arm that lacks a seed waits, and so do its comparisons."""
    first = SMALL.text.corpora[0]
    absent = f"twicing, {first}, seed 101"
    write_made(SMALL, tmp_path / "without twicing", lambda trial: trial.label != absent)
    found = reread(SMALL, tmp_path / "without twicing")
    table = found.tables["lm-main"]
    assert {f"{arm} | {first}" for arm in ("standard", "boosted", "param-fair")} <= table.rows.keys()
    assert f"twicing | {first}" not in table.rows
    assert main.OVER_STANDARD.quantity.on(first) in table.quantities
    assert table.missing[main.OVER_TWICING.quantity.on(first)] == "twicing was not run"
    assert main.figure(found.preset, table, found.outcome.result).panels
    absent = f"standard, {first}, seed 102"
    write_made(SMALL, tmp_path / "without standard", lambda trial: trial.label != absent)
    assert "lm-main" not in reread(SMALL, tmp_path / "without standard").tables


def test_a_further_size_is_shown_once_it_is_there(tmp_path):
    """Without one training of the further width: its sweeps are told, its row and the slopes wait."""
    first = SMALL.text.corpora[0]
    write_made(SMALL, tmp_path, lambda trial: trial.label != f"matched, d=128, {first}, seed 102")
    found = reread(SMALL, tmp_path)
    table = found.tables["lm-scale"]
    assert list(table.rows) == [f"d=64 | {first}"]
    assert scale.OWN_WIDTH.on(first) in table.quantities
    assert {table.missing[q.on(first)] for q in (scale.BY_WIDTH, scale.BY_LOSS)} == {"d=128 was not run"}
    assert sum("d=128" in note and "taken x 1" in note for note in table.notes) == len(PAIR)
    panels = scale.figure(found.preset, table, found.outcome.result).panels
    assert [panel.title for panel in panels] == [first, "rates at d=128"]
    write_made(SMALL, tmp_path)
    whole = reread(SMALL, tmp_path).tables["lm-scale"]
    assert list(whole.rows) == [f"d={d} | {first}" for d in (64, 128)]
    assert scale.BY_WIDTH.on(first) in whole.quantities


def test_a_further_size_whose_sweep_is_not_finished_leaves_the_rest_to_be_shown(tmp_path):
    write_made(SMALL, tmp_path, lambda trial: "rates x 2, d=128" not in trial.label)
    found = reread(SMALL, tmp_path)
    table = found.tables["lm-scale"]
    assert len(table.rows) == 1
    assert not any("d=128" in note for note in table.notes)
    assert len(scale.figure(found.preset, table, found.outcome.result).panels) == 1


def test_an_experiment_that_the_preset_does_not_list_has_no_table_from_the_others_trainings(made, tmp_path):
    """Tokens that halt share two fixed arms with the arena; a look has all that other tables of three arms need."""
    found, _ = made
    assert set(found.tables) == set(SMALL.experiments) - {"analysis"}
    look = PRESETS["look"]
    write_made(look, tmp_path)
    assert list(reread(look, tmp_path).tables) == ["lm-main"]


def test_an_experiment_that_was_asked_for_beside_those_of_the_preset_has_its_table(tmp_path):
    more = replace(SMALL, experiments=(*SMALL.experiments, "lm-stagewise"))
    write_made(more, tmp_path)
    assert "lm-stagewise" in reread(SMALL, tmp_path).tables
