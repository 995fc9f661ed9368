"""The language-model half of the lab: every experiment runs, pairs are fair, claims say at which scale."""

import json
import shutil
from dataclasses import replace

import pytest

from boosted_attention import LanguageModelConfig
from boosted_attention.cli.main import main
from boosted_attention.lab.claims import CLAIMS
from boosted_attention.lab.experiments import DEFAULT, LANGUAGE, experiment
from boosted_attention.lab.experiments.language import controls, scale
from boosted_attention.lab.experiments.language._arms import main_arms
from boosted_attention.lab.experiments.language._shared import place_of, read, require_alike, short
from boosted_attention.lab.experiments.language._trials import DEFAULTS, stated, training_trial
from boosted_attention.lab.judging.claim import Role
from boosted_attention.lab.judging.judge import judge
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.table import render
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.reproduce import reproduce, reread
from boosted_attention.train.config import TrainingConfig
from tests.text import sample_text

PLACE = Place(kind=Kind.LANGUAGE, text="text:words.txt", size="23 k")  # of models that know 300 tokens


def test_every_experiment_yields_a_table(language_smoke):
    found, out = language_smoke
    assert set(LANGUAGE) <= set(found.tables)
    text = (out / "tables.md").read_text()
    for name in LANGUAGE:
        table = found.tables[name]
        assert render(table) in text
        assert table.quantities or name in ("lm-pareto", "lm-convergence")  # in three steps no model may reach another
        assert list(table.places) == ["text:words.txt"]
        assert table.places["text:words.txt"] == PLACE


def test_claims_show_their_place_and_the_papers_figures_wait_for_theirs(language_smoke):
    found, _ = language_smoke
    judged = {j.claim.id: j for j in found.ledger.rows if j.claim.experiment in LANGUAGE}
    assert (judged["lm-vs-standard"].place, judged["lm-vs-standard"].verdict) == (PLACE, "cannot tell")  # two seeds
    assert "at least 3 are needed" in judged["lm-vs-standard"].remark
    for id, one in judged.items():
        if one.claim.role is Role.NUMBER:
            assert (one.verdict, one.place, one.ours) == ("not run", None, None), id
    decided = {id for id, j in judged.items() if j.verdict != "not run"}
    assert {"lm-post-reverses", "lm-kv-residual", "lm-rounds-enough", "lm-residual"} <= decided
    assert {"lm-flops", "lm-scale", "lm-selective"} <= decided


def test_every_claim_is_decided_at_the_papers_place(language_smoke):
    """The same results, read as if they were of the paper's size and text: only what was not run stays open."""
    found, _ = language_smoke
    for text in ("wikitext-103", "openwebtext"):
        tables = {name: at_the_papers_place(found.tables[name], text) for name in LANGUAGE}
        for row in judge([claim for claim in CLAIMS if claim.experiment in LANGUAGE], tables).rows:
            of_another_text = row.claim.quantity.text not in ("", text)
            absent = row.claim.quantity.on(text) in tables[row.claim.experiment].missing
            assert (row.verdict == "not run") == (of_another_text or absent), row.claim.id


def at_the_papers_place(table, text):
    """A table as if its one text were one of the paper's."""

    def moved(values):
        return {quantity.on(text): value for quantity, value in values.items()}

    place = Place(kind=Kind.LANGUAGE, text=text, size="8.7 M", is_the_papers=True)
    held = {name: moved(getattr(table, name)) for name in ("quantities", "missing", "failed")}
    return replace(table, places={text: place}, **held)


def test_a_place_is_the_papers_only_with_its_size_and_text():
    paper = PRESETS["paper"]
    for text in ("wikitext-103", "openwebtext"):
        assert place_of(paper, text) == Place(kind=Kind.LANGUAGE, text=text, size="8.7 M", is_the_papers=True)
    other = paper.with_corpora(["enwik8-clean"])
    assert not place_of(other, "enwik8-clean").is_the_papers
    small = place_of(PRESETS["cpu"].with_corpora(["wikitext-103"]), "wikitext-103")
    assert (small.text, small.is_the_papers) == ("wikitext-103", False)
    twins = PRESETS["cpu"].with_corpora(["text:a/x.txt", "text:b/x.txt"])
    assert [short(twins, corpus) for corpus in twins.text.corpora] == ["text:a/x.txt", "text:b/x.txt"]
    assert short(PRESETS["cpu"].with_corpora(["text:a/x.txt"]), "text:a/x.txt") == "text:x.txt"


def test_arms_of_a_seed_see_the_same_batches(language_smoke, text_preset):
    found, out = language_smoke
    arms, corpus = controls.arms(text_preset), text_preset.text.corpora[0]
    orders = {}
    for seed in text_preset.text.seeds:
        results = [found.outcome.result(training_trial(text_preset, corpus, arm, seed, "")) for arm in arms.values()]
        orders[seed] = {result["order"] for result in results}
        assert len(orders[seed]) == 1
        batches = set()
        for arm in arms.values():
            rows = (
                out / "trials" / training_trial(text_preset, corpus, arm, seed, "").key / "training" / "metrics.jsonl"
            ).read_text()
            batches.add(tuple(row["batch"] for row in map(json.loads, rows.splitlines()) if "batch" in row))
        assert len(batches) == 1
    assert orders[42] != orders[123]


def test_results_follow_from_the_configuration(language_smoke, text_preset, tmp_path):
    """Another folder, another number of workers, the same bytes but for the clock."""
    _, first = language_smoke
    reproduce(["lm-kv-source"], text_preset, tmp_path, workers=1)
    everything = json.loads((first / "results.json").read_text())
    again = json.loads((tmp_path / "results.json").read_text())
    assert len(again) == 6
    for key, value in again.items():
        assert everything[key] == value
        assert "measured" not in value["result"]


def test_a_second_call_computes_nothing(language_smoke, text_preset):
    """Results of every kind are read back, those that trained nothing among them."""
    found, out = language_smoke
    again = reproduce(list(LANGUAGE), text_preset, out, workers=1)
    assert not again.outcome.failures
    assert [j.verdict for j in again.ledger.rows] == [j.verdict for j in found.ledger.rows]


def test_several_corpora_at_once(text_preset, tmp_path):
    (tmp_path / "more.txt").write_text(sample_text(20_000, seed=7))
    both = text_preset.with_corpora([*text_preset.text.corpora, f"text:{tmp_path / 'more.txt'}"]).with_seeds(1)
    names = ["lm-main", "lm-normalization", "lm-kv-source", "lm-rounds"]
    found = reproduce(names, both, tmp_path / "out", workers=2)
    for name in [*names, "lm-convergence"]:
        table = found.tables[name]
        parts = [part.splitlines() for part in render(table).split("\n\n") if part.startswith("|")]
        widths = [{line.count("|") for line in rows} for rows in parts]
        assert widths[0] == {len(table.columns) + 2}, name
        assert all(len(same) == 1 for same in widths), name  # a corpus in a label breaks no row
        labels = [comparison.label for comparison in table.comparisons]
        assert len(set(labels)) == len(labels), name
        assert sum("more.txt" in label for label in table.rows) == len(table.rows) / 2
    table = found.tables["lm-main"]
    assert len(table.rows) == 8
    judged = [j for j in found.ledger.rows if j.claim.id == "lm-vs-standard"]
    assert [j.place.text for j in judged] == ["text:words.txt", "text:more.txt"]
    assert {j.verdict for j in judged} == {"cannot tell"}  # one seed decides nothing


def test_different_texts_under_one_name_are_refused_and_listed(language_smoke, text_preset, tmp_path):
    found, _ = language_smoke
    results = read(text_preset, found.outcome.result, text_preset.text.corpora[0], main_arms(text_preset))
    changed = {**results, "boosted": {**results["boosted"], 42: replace(results["boosted"][42], data="another")}}
    with pytest.raises(ValueError, match=r"different texts .*standard \(seed 42\).*another: boosted \(seed 42\)"):
        require_alike(changed, "words")
    changed = {**results, "boosted": {**results["boosted"], 42: replace(results["boosted"][42], order="another")}}
    with pytest.raises(ValueError, match="different batches"):
        require_alike(changed, "words")


def test_different_versions_are_refused_and_listed(language_smoke, text_preset, tmp_path):
    _, out = language_smoke
    copy = tmp_path / "out"
    shutil.copytree(out, copy, ignore=shutil.ignore_patterns("training"))
    trial = experiment("lm-main").trials(text_preset)[0]
    path = copy / "trials" / trial.key / "result.json"
    record = json.loads(path.read_text())
    record["versions"]["torch"] = "9.9"
    path.write_text(json.dumps(record))
    with pytest.raises(
        ValueError, match=rf"mixes results of different versions: .*torch 9\.9: {trial.key}; .* more; use another"
    ):
        reread(text_preset, copy)


def test_widths_of_lm_scale_are_trained_alike():
    """Tokens per parameter and the part of the schedule that is run are the same at every width."""
    for name in ("quick", "cpu"):
        seen = []
        for width in scale.widths(PRESETS[name]):
            trial, _ = scale.pair(PRESETS[name], "stdlib", width, 42)
            training = TrainingConfig(**trial.config["training"])
            parameters = LanguageModelConfig.from_dict(trial.config["model"]).num_params()
            end = training.lr_at(training.steps, training.steps) / training.lr
            seen.append((training.steps / parameters, end))
        assert [a for a, _ in seen] == pytest.approx([seen[1][0]] * 3, rel=0.02)
        assert [b for _, b in seen] == pytest.approx([seen[1][1]] * 3, abs=0.01)
    paper = PRESETS["paper"]
    steps = [scale.pair(paper, "wikitext-103", w, 42)[0].config["training"]["steps"] for w in scale.widths(paper)]
    assert steps[0] < 18_300 / 2 < 18_300 < steps[2]


def test_a_changed_text_is_refused_before_anything_runs(text_preset, tmp_path, capsys):
    text = tmp_path / "x.txt"
    text.write_text(sample_text(20_000, seed=3))
    one = text_preset.with_corpora([f"text:{text}"]).with_seeds(1)
    reproduce(["lm-main"], one, tmp_path / "out", workers=2)
    text.write_text(sample_text(20_000, seed=4))
    with pytest.raises(
        ValueError, match=r"is another text now than in earlier results: standard, text:.*use another folder"
    ):
        reproduce(["lm-main"], one, tmp_path / "out", workers=2)


def test_a_text_too_small_for_the_preset_names_both_numbers(tmp_path):
    (tmp_path / "small.txt").write_text(sample_text(60_000))
    small = PRESETS["cpu"].with_corpora([f"text:{tmp_path / 'small.txt'}"])
    small = replace(small, text=replace(small.text, model={"vocab_size": 300}))
    with pytest.raises(
        ValueError, match=r"too small for the preset: it trains on 5324800 tokens, the text has \d+, and more"
    ):
        reproduce(["lm-main"], small, tmp_path / "out", workers=1)


def test_by_default_the_synthetic_half_and_the_main_table():
    assert [name for name in DEFAULT if name in LANGUAGE] == ["lm-main", "analysis"]


def refused(args, capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    printed = capsys.readouterr()
    assert stop.value.code == 2
    lines = [line for line in printed.err.splitlines() if line.startswith("boosted-attention: ")]
    assert len(lines) == 1, printed.err
    return lines[0]


def test_bad_input_is_one_line(tmp_path, capsys):
    (tmp_path / "small.txt").write_text(sample_text(900))
    reproduce_it = ["reproduce", "lm-main", "--preset", "smoke", "--out", tmp_path / "out", "--corpus"]
    message = refused([*reproduce_it, f"text:{tmp_path / 'small.txt'}"], capsys)
    assert "train_tokens=4096: the training split of text:" in message
    assert " tokens" in message.partition("has ")[2]
    assert "does not exist" in refused([*reproduce_it, "text:/nowhere"], capsys)
    assert "did you mean 'lm-main'" in refused(["reproduce", "lm-man"], capsys)
    assert "--plan is for language models" in refused(["reproduce", "rounds", "--plan"], capsys)
    assert "--tflops goes with --plan" in refused(["reproduce", "--tflops", "3"], capsys)
    assert "holds no results" in refused(["results", tmp_path], capsys)
    assert not (tmp_path / "out" / "claims.json").exists()


def test_the_plan_runs_nothing(capsys, tmp_path, monkeypatch, text_file):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "lm-main", "--preset", "smoke", "--corpus", f"text:{text_file}", "--plan", "--tflops", "10"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "param-fair" in shown
    assert "10 TFLOP/s" in shown
    assert not any(tmp_path.iterdir())


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


def test_trials_are_named_by_what_makes_them():
    base = PRESETS["cpu"].text.configuration()
    assert stated(base.model) == {
        "vocab_size": 2048,
        "d_model": 64,
        "n_layers": 4,
        "n_heads": 4,
        "max_len": 128,
        "attention": "boosted",
        "positions": "rotary",
        "init": "zero",
    }
    assert stated(base.training) == {
        "steps": 1300,
        "batch_size": 32,
        "lr": 1.6e-2,
        "matrix_lr": 0.02,
        "optimizer": "muon",
        "schedule": "linear",
        "horizon": 0,
        "eval_every": 100,
        "layout": "windows",
        "seed": 0,
    }
    text = PRESETS["cpu"].text
    assert (text.seeds, text.training, text.model, text.data) == ((42, 123, 7), {}, {}, {})


def test_defaults_are_those_that_results_were_made_with():
    """A default that changes must not pass old results for new ones: see DEFAULTS."""
    for kind, known in DEFAULTS.items():
        values = kind().to_dict() if kind is LanguageModelConfig else vars(kind())
        assert {name: values[name] for name in known} == known
