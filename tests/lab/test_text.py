"""The language-model half of the lab: every experiment runs, pairs are fair, claims say at which scale."""

import json
import shutil
from dataclasses import replace

import pytest

from boosted_attention import LanguageModelConfig
from boosted_attention.cli.main import main
from boosted_attention.lab import matching
from boosted_attention.lab.claims import CLAIMS, judge
from boosted_attention.lab.experiments import (
    DEFAULT,
    TEXT,
    experiment,
    lm_controls,
    lm_convergence,
    lm_pareto,
    lm_scale,
)
from boosted_attention.lab.experiments import analysis as lm_analysis
from boosted_attention.lab.experiments.text import main_arms, read, require_alike, scale_of, short, stands_for
from boosted_attention.lab.language import (
    DEFAULTS,
    arm_model,
    recipe,
    start_anew_with_other_versions,
    stated,
    text_run,
    train_time_matched,
)
from boosted_attention.lab.matching import matched
from boosted_attention.lab.presets import PRESETS, Preset
from boosted_attention.lab.reproduce import all_runs, reproduce, reread
from boosted_attention.lab.runs import checksum
from boosted_attention.lab.shipped import BEGIN, END, into, shipped
from boosted_attention.lab.table import Comparison, Table
from boosted_attention.lab.verdicts import Criterion
from boosted_attention.statistics import Estimate, estimate
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.recipes import PAPER
from tests.text import sample_text

ONE = {"mean": -1.0, "low": -2.0, "high": -0.5, "std": 0.1, "n": 3}


@pytest.fixture(scope="module")
def preset(text_file) -> Preset:
    return PRESETS["smoke"].with_corpora([f"text:{text_file}"])


@pytest.fixture(scope="module")
def smoke(tmp_path_factory, preset):
    """All language-model experiments once, at the smallest preset."""
    out = tmp_path_factory.mktemp("text-smoke")
    return reproduce(list(TEXT), preset, out, workers=2), out


def test_every_experiment_yields_a_table(smoke):
    found, out = smoke
    assert not found.outcome.failures
    assert not found.incomplete
    assert set(TEXT) <= set(found.tables)
    text = (out / "tables.md").read_text()
    for name in TEXT:
        table = found.tables[name]
        assert experiment(name).render(table) in text
        assert table.quantities or name == "lm-convergence"  # in three steps, no model may reach another
        assert table.scale == "mini, text:words.txt"


def test_claims_show_their_scale_and_absolute_figures_wait_for_it(smoke):
    found, _ = smoke
    judged = {j.claim.id: j for j in found.ledger if j.claim.experiment in TEXT}
    assert judged["lm-wt103-vs-standard"].scale == "mini, text:words.txt"
    assert judged["lm-wt103-vs-standard"].verdict != "not run"
    for id in ("lm-wt103-standard", "lm-wt103-size", "lm-convergence-wide", "lm-post-boosted", "lm-owt-vs-standard"):
        assert judged[id].verdict == "not run"
        assert judged[id].scale is None
    decided = {id for id, j in judged.items() if j.verdict != "not run"}
    assert {"lm-post-reverses", "lm-kv-residual", "lm-rounds-enough"} <= decided
    assert judged["lm-params"].scale is None  # known at the paper's size without training
    assert judged["lm-params"].verdict == "reproduced"
    assert {"lm-residual", "lm-flops", "lm-scale", "lm-selective"} <= decided


def test_every_claim_is_decided_at_the_papers_scale(smoke, preset):
    """The same results, read as if they were of the paper's size: only what was not run stays open."""
    found, _ = smoke
    tables = {name: replace(table, scale=None) for name, table in found.tables.items()}
    for claim in CLAIMS:
        if claim.experiment in TEXT:
            absent = "openwebtext" in claim.quantity or claim.quantity not in tables[claim.experiment].quantities
            assert (judge(claim, tables).verdict == "not run") == absent, claim.id
            assert not absent or "openwebtext" in claim.quantity or claim.experiment == "lm-convergence", claim.id
    assert judge(CLAIMS[-1], {CLAIMS[-1].experiment: Table("", [])}).verdict == "not run"


def test_scale_is_the_papers_only_with_its_size_and_text():
    paper = PRESETS["paper"]
    assert scale_of(paper) is None
    assert scale_of(paper.with_corpora(["wikitext-103"])) is None
    assert scale_of(paper.with_corpora(["enwik8-clean"])) == "paper-small, enwik8-clean"
    assert scale_of(PRESETS["cpu"].with_corpora(["wikitext-103"])) == "mini, wikitext-103"
    assert stands_for(PRESETS["cpu"].with_corpora(["openwebtext", "wikitext-103"])) == {
        "openwebtext": "openwebtext",
        "wikitext-103": "wikitext-103",
    }
    assert stands_for(PRESETS["cpu"].with_corpora(["a", "b"])) == {"a": "wikitext-103", "b": "openwebtext"}
    twins = PRESETS["cpu"].with_corpora(["text:a/x.txt", "text:b/x.txt"])
    assert [short(twins, corpus) for corpus in twins.text.corpora] == ["text:a/x.txt", "text:b/x.txt"]


def test_a_gain_must_be_there_before_it_is_divided():
    claim = next(claim for claim in CLAIMS if claim.id == "lm-rounds-enough")
    table = Table("", [])
    table.quantities[claim.quantity] = Estimate(**ONE)
    for low, high, verdict in ((-3, -1, "reproduced"), (-1, 1, "within noise"), (1, 3, "not reproduced")):
        table.quantities["M=2 - M=1"] = Estimate(**{**ONE, "low": low, "high": high})
        assert judge(claim, {"lm-rounds": table}).verdict == verdict


def test_noise_agrees_with_nothing():
    wide = estimate([20.0, -40.0])
    assert Criterion(rule="number", target=-6.0).judge(wide) == "within noise"


def test_arms_of_a_seed_see_the_same_batches(smoke, preset):
    found, out = smoke
    arms, corpus = lm_controls.arms(preset), preset.text.corpora[0]
    orders = {}
    for seed in preset.text.seeds:
        results = [found.outcome.result(text_run(preset, corpus, arm, seed, "")) for arm in arms.values()]
        orders[seed] = {result["order"] for result in results}
        assert len(orders[seed]) == 1
        batches = set()
        for arm in arms.values():
            rows = (
                out / "runs" / text_run(preset, corpus, arm, seed, "").key / "training" / "metrics.jsonl"
            ).read_text()
            batches.add(tuple(row["batch"] for row in map(json.loads, rows.splitlines()) if "batch" in row))
        assert len(batches) == 1
    assert orders[42] != orders[123]


def test_results_follow_from_the_configuration(smoke, preset, tmp_path):
    """Another folder, another number of workers, the same bytes but for the clock."""
    _, first = smoke
    reproduce(["lm-kv-source"], preset, tmp_path, workers=1)
    everything = json.loads((first / "results.json").read_text())
    again = json.loads((tmp_path / "results.json").read_text())
    assert len(again) == 6
    for key, value in again.items():
        assert everything[key] == value
        assert "measured" not in value["result"]


def test_several_corpora_at_once(preset, tmp_path):
    (tmp_path / "more.txt").write_text(sample_text(20_000, seed=7))
    both = preset.with_corpora([*preset.text.corpora, f"text:{tmp_path / 'more.txt'}"]).with_seeds(1)
    names = ["lm-main", "lm-normalization", "lm-kv-source", "lm-rounds"]
    found = reproduce(names, both, tmp_path / "out", workers=2)
    for name in [*names, "lm-convergence"]:
        table = found.tables[name]
        parts = [part.splitlines() for part in experiment(name).render(table).split("\n\n") if part.startswith("|")]
        widths = [{line.count("|") for line in rows} for rows in parts]
        assert widths[0] == {len(table.columns) + 2}, name
        assert all(len(same) == 1 for same in widths), name  # a corpus in a label breaks no row
        labels = [comparison.label for comparison in table.comparisons]
        assert len(set(labels)) == len(labels), name
        assert sum("more.txt" in label for label in table.rows) == len(table.rows) / 2
    table = found.tables["lm-main"]
    assert len(table.rows) == 8
    verdicts = {j.claim.id: j.verdict for j in found.ledger}
    assert verdicts["lm-owt-vs-standard"] == "within noise"  # one seed decides nothing
    assert table.scale == "mini, text:words.txt, text:more.txt"


def test_different_texts_under_one_name_are_refused_and_listed(smoke, preset, tmp_path):
    found, _ = smoke
    results = read(preset, found.outcome.result, preset.text.corpora[0], main_arms(preset))
    changed = {name: {seed: dict(result) for seed, result in by_seed.items()} for name, by_seed in results.items()}
    changed["boosted"][42]["data"] = "another"
    with pytest.raises(ValueError, match=r"different texts .*standard \(seed 42\).*another: boosted \(seed 42\)"):
        require_alike(changed, "words")
    changed = {name: {seed: dict(result) for seed, result in by_seed.items()} for name, by_seed in results.items()}
    changed["boosted"][42]["order"] = "another"
    with pytest.raises(ValueError, match="different batches"):
        require_alike(changed, "words")


def test_different_versions_are_refused_and_listed(smoke, preset, tmp_path):
    _, out = smoke
    copy = tmp_path / "out"
    shutil.copytree(out, copy, ignore=shutil.ignore_patterns("training"))
    run = experiment("lm-main").runs(preset)[0]
    path = copy / "runs" / run.key / "result.json"
    record = json.loads(path.read_text())
    record["versions"]["torch"] = "9.9"
    path.write_text(json.dumps(record))
    with pytest.raises(
        ValueError, match=rf"mixes results of different versions: .*torch 9\.9: {run.key}; .* more; use another"
    ):
        reread(preset, copy)


def test_matching_finds_the_papers_width():
    model = matched(replace(PAPER.model, attention="boosted"), "parameters")
    assert (model.d_model, model.num_params(), model.ffn_multiple) == (288, 8_789_184, 4.0)
    assert main_arms(PRESETS["paper"])["param-fair"] == {"attention": "standard", "d_model": 288}


@pytest.mark.parametrize("by", sorted(matching.COSTS))
@pytest.mark.parametrize(
    "arm", [{"attention": "boosted"}, {"attention": "gated"}, {"attention": "boosted", "norm": "post"}]
)
def test_matched_models_cost_the_same(by, arm):
    model = replace(recipe(PRESETS["cpu"]).model, **arm)
    found = matched(model, by)
    assert found.attention == "standard"
    assert found.norm == model.norm
    assert matching.COSTS[by](found) == pytest.approx(matching.COSTS[by](model), rel=0.01)


def test_what_cannot_be_matched_shows_the_nearest():
    tiny = LanguageModelConfig(vocab_size=3, d_model=4, n_layers=1, n_heads=4, max_len=2, ffn_multiple=0.25)
    with pytest.raises(
        ValueError, match=r"no standard model has the parameters of 'boosted', .*: the nearest, d_model="
    ):
        matching.match_cost(tiny, 13.0, matching.COSTS["parameters"], "parameters")
    with pytest.raises(ValueError, match=r"by='flps' .*did you mean 'flops'"):
        matched(tiny, "flps")


def test_runs_are_named_by_what_makes_them():
    base = recipe(PRESETS["cpu"])
    assert stated(base.model) == {
        "vocab_size": 2048,
        "d_model": 64,
        "n_layers": 4,
        "n_heads": 4,
        "max_len": 128,
        "attention": "boosted",
    }
    assert stated(base.training) == {"steps": 1600, "batch_size": 32, "lr": 1e-3, "layout": "windows", "seed": 0}
    text = PRESETS["cpu"].text
    assert (text.seeds, text.training, text.model, text.data) == ((42, 123, 7), {}, {}, {})


def test_the_paper_preset_is_the_papers():
    base = recipe(PRESETS["paper"])
    t, d = base.training, base.data
    assert (t.epochs, t.batch_size, t.lr, t.warmup, t.horizon, t.weight_decay, t.clip) == (
        15,
        32,
        3e-4,
        1500,
        0,
        0.01,
        1.0,
    )
    assert (t.layout, t.protocol, t.eval_every, t.eval_unit, t.beta2) == ("rows", "paper", 1, "epochs", 0.999)
    assert (d.tokenizer, d.train_tokens) == ("paper", 10_000_000)
    m = base.model
    assert (m.vocab_size, m.max_len, m.n_layers, m.n_heads, m.dropout, m.norm) == (16_384, 256, 4, 4, 0.1, "pre")
    assert PRESETS["paper"].text.seeds == (42, 123)
    assert [arm_model(PRESETS["paper"], arm).num_params() for arm in main_arms(PRESETS["paper"]).values()] == [
        7_419_392,
        7_419_392,
        8_789_184,
        8_734_208,
    ]


def test_defaults_are_those_that_results_were_made_with():
    """A default that changes must not pass old results for new ones: see DEFAULTS."""
    for kind, known in DEFAULTS.items():
        values = kind().to_dict() if kind is LanguageModelConfig else vars(kind())
        assert {name: values[name] for name in known} == known


def test_widths_of_lm_scale_are_trained_alike():
    """Tokens per parameter and the part of the schedule that is run are the same at every width."""
    for name in ("quick", "cpu"):
        seen = []
        for width in lm_scale.widths(PRESETS[name]):
            run, _ = lm_scale.pair(PRESETS[name], "stdlib", width, 42)
            training = TrainingConfig(**run.config["training"])
            parameters = LanguageModelConfig.from_dict(run.config["model"]).num_params()
            end = training.lr_at(training.steps, training.steps) / training.lr
            seen.append((training.steps / parameters, end))
        assert [a for a, _ in seen] == pytest.approx([seen[1][0]] * 3, rel=0.02)
        assert [b for _, b in seen] == pytest.approx([seen[1][1]] * 3, abs=0.01)
    paper = PRESETS["paper"]
    steps = [lm_scale.pair(paper, "wikitext-103", w, 42)[0].config["training"]["steps"] for w in lm_scale.widths(paper)]
    assert steps[0] < 18_300 / 2 < 18_300 < steps[2]


def test_a_changed_text_is_refused_before_anything_runs(preset, tmp_path, capsys):
    text = tmp_path / "x.txt"
    text.write_text(sample_text(20_000, seed=3))
    one = preset.with_corpora([f"text:{text}"]).with_seeds(1)
    reproduce(["lm-main"], one, tmp_path / "out", workers=2)
    text.write_text(sample_text(20_000, seed=4))
    with pytest.raises(
        ValueError, match=r"is another text now than in earlier results: standard, text:.*use another --out"
    ):
        reproduce(["lm-main"], one, tmp_path / "out", workers=2)


def test_results_of_another_version_are_trained_again(preset, tmp_path):
    one = preset.with_seeds(1)
    reproduce(["lm-kv-source"], one, tmp_path, workers=2)
    run = experiment("lm-kv-source").runs(one)[0]
    path = tmp_path / "runs" / run.key / "result.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "versions": {**record["versions"], "boosted-attention": "0.0.1"}}))
    reproduce(["lm-kv-source"], one, tmp_path, workers=2)
    assert (path.parent / "training.old-1").exists()
    assert (path.parent / "training").exists()
    assert json.loads(path.read_text())["result"]["test"] == record["result"]["test"]


def test_a_run_begun_by_another_version_begins_anew(tmp_path):
    place = tmp_path / "training"
    start_anew_with_other_versions(place)
    (place / "weights").write_text("")
    start_anew_with_other_versions(place)
    assert (place / "weights").exists()
    (place / "versions.json").write_text('{"boosted-attention": "0.0.1", "torch": "1.0"}')
    start_anew_with_other_versions(place)
    assert [p.name for p in place.iterdir()] == ["versions.json"]
    assert (tmp_path / "training.old-1" / "weights").exists()


def test_a_text_too_small_for_the_preset_names_both_numbers(tmp_path):
    (tmp_path / "small.txt").write_text(sample_text(60_000))
    small = PRESETS["cpu"].with_corpora([f"text:{tmp_path / 'small.txt'}"])
    small = replace(small, text=replace(small.text, model={"vocab_size": 300}))
    with pytest.raises(
        ValueError, match=r"too small for the preset: it trains on 6553600 tokens, the text has \d+, and more"
    ):
        reproduce(["lm-main"], small, tmp_path / "out", workers=1)


def test_steps_to_a_loss():
    result = {"curve": [[0, 8.0], [100, 6.0], [200, 5.0]]}
    assert lm_convergence.steps_to(result, 7.0) == 50
    assert lm_convergence.steps_to(result, 5.5) == 150
    assert lm_convergence.steps_to(result, 4.0) is None


def test_slopes_and_fronts():
    assert lm_scale.slope([0, 1, 2], [1, 3, 5]) == pytest.approx(2.0)
    points = {"a": (1.0, 5.0), "b": (2.0, 6.0), "c": (2.0, 4.0)}
    assert lm_pareto.dominated(points) == {"a": [], "b": ["a", "c"], "c": []}


def test_by_default_the_synthetic_half_and_the_main_table():
    assert [name for name in DEFAULT if name in TEXT] == ["lm-main", "analysis"]


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


def test_shipped_results_are_written_between_the_marks(smoke, tmp_path):
    _, out = smoke
    shutil.copytree(out, tmp_path / "results" / "smoke", ignore=shutil.ignore_patterns("training"))
    block = shipped(tmp_path / "results")
    assert "| boosted | " in block
    assert "At this scale boosted attention " in block
    page = f"before\n{BEGIN}old\n{END}after\n"
    assert into(page, block, "page") == f"before\n{BEGIN}{block}{END}after\n"
    with pytest.raises(ValueError, match="has no place for results"):
        into("nothing", block, "page")


def test_words_follow_the_interval(smoke):
    from boosted_attention.lab.shipped import words

    table = Table("", [])
    for name, low, high in (("standard", -3, -1), ("parallel", 1, 3), ("param-fair", -1, 1)):
        difference = Estimate(**{**ONE, "mean": (low + high) / 2, "low": low, "high": high})
        table.comparisons.append(Comparison(f"boosted - {name}", difference, None, None, None))
    said = words(table)
    assert "beats standard attention" in said
    assert "loses to a second attention" in said
    assert "cannot be told from the standard model with as many parameters" in said


def test_seeds_can_be_more_than_the_presets():
    assert PRESETS["quick"].with_seeds(3).text.seeds == (42, 123, 1000)
    assert Preset.from_dict(json.loads(json.dumps(vars(PRESETS["smoke"]), default=vars))) == PRESETS["smoke"]
    assert len(all_runs(["lm-main"], PRESETS["quick"])) == 8


def test_weights_that_are_gone_are_trained_again(preset, tmp_path):
    """And an analysis is made of the same model as before, or not at all."""
    one = preset.with_seeds(1)
    reproduce(["analysis"], one, tmp_path, workers=2)
    run = lm_analysis.needed(one)[0]
    path = tmp_path / "runs" / run.key / "result.json"
    before = path.read_text()
    for checkpoints in tmp_path.glob("runs/train_model-*/training/checkpoints"):
        shutil.rmtree(checkpoints)
    path.unlink()
    assert not reproduce(["analysis"], one, tmp_path, workers=2).outcome.failures
    assert json.loads(path.read_text())["result"] == json.loads(before)["result"]
    boosted = tmp_path / "runs" / run.after[0] / "result.json"
    record = json.loads(boosted.read_text())
    record["result"]["test"]["loss"] += 1.0
    boosted.write_text(json.dumps({**record, "sha256": checksum(record["result"])}))
    shutil.rmtree(boosted.parent / "training")
    path.unlink()
    failures = reproduce(["analysis"], one, tmp_path, workers=2).outcome.failures
    assert "came out otherwise" in next(iter(failures.values()))


def test_no_width_may_take_the_time_of_a_boosted_step(smoke, preset):
    """What the clock says is not in our hands: then there is no time-matched arm, and the table says so."""
    found, _ = smoke
    timed = {lm_controls.timed(preset, preset.text.corpora[0], seed).key for seed in preset.text.seeds}

    def results(ratio):
        far = {"boosted": 1.0, "16": 0.1, "20": ratio}
        config = {"model": {}, "training": {}, "data": {}}
        none = train_time_matched(lambda _: None, folder=None, earlier=[{"measured": far}], **config)  # type: ignore
        return lambda run: none if run.key in timed else found.outcome.result(run)

    table = lm_controls.collect(preset, results(0.82))
    assert "time-matched width" not in table.rows
    assert "no standard model takes the time of a boosted step (the nearest, d_model=20, takes 0.82)" in table.notes[-1]
    assert "boosted - parallel" in table.quantities
