"""Reproduction from the command line: what is shown, what is refused in one line, and what a plan does not do."""

import json
import re
import subprocess
import sys
import time

import pytest

from boosted_attention.cli.main import main
from boosted_attention.lab.claims import CLAIMS
from boosted_attention.lab.estimate import trainings
from boosted_attention.lab.experiments import EXPERIMENTS, experiment
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.trials.store import FOLDER, write_record
from boosted_attention.storage.locks import exclusive
from boosted_attention.validation import InputError
from tests.text import sample_text

SMOKE = PRESETS["smoke"]


def call(capsys, *args):
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


def test_commands(tmp_path, capsys):
    """claims shows what reproduce left, and a narrower call takes nothing away."""
    for names in (["metric", "gates"], ["metric"]):
        code, out, _ = call(
            capsys, "reproduce", *names, "--preset", "smoke", "--seeds", 3, "--out", tmp_path, "--workers", 1
        )
        assert code == 0
        assert "Accuracy (%) against squared error" in out
        assert "Kinds of gate" in (tmp_path / "tables.md").read_text()
        code, out, _ = call(capsys, "claims", "--out", tmp_path, "--json")
        decided = [row for row in json.loads(out)["claims"] if row["verdict"] != "not run"]
        assert {row["experiment"] for row in decided} == {"gates"}
        assert code == 0
    code, out, _ = call(capsys, "claims", "--out", tmp_path, "--markdown")
    assert sum(line.startswith(tuple(f"| {claim.id} |" for claim in CLAIMS)) for line in out.splitlines()) == len(
        CLAIMS
    )
    assert "| The attention to the residual, not the gating, is the key ingredient. |" in out
    code, out, _ = call(capsys, "claims", "--out", tmp_path / "nothing")
    assert not re.search(r"\breproduced\b", out)
    assert not (tmp_path / "nothing").exists()


def test_damage_is_named(tmp_path, capsys):
    (tmp_path / "claims.json").write_text("{")
    code, _, err = call(capsys, "claims", "--out", tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    (tmp_path / "claims.json").unlink()
    trial = experiment("metric").trials(PRESETS["quick"])[0]
    path = tmp_path / "trials" / trial.key / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    code, _, err = call(capsys, "claims", "--out", tmp_path)
    assert code == 0
    assert f"left out: {path} is not JSON" in err
    assert path.read_text() == "{"


def test_ctrl_c_is_one_line_and_130(tmp_path, capsys, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    for where in ("boosted_attention.lab.reproduce.execute", "boosted_attention.report.files.write_figures"):
        with monkeypatch.context() as patch:
            patch.setattr(where, interrupted)
            code, _, err = call(capsys, "reproduce", "metric", "--preset", "smoke", "--out", tmp_path)
        assert code == 130
        assert "stopped" in err
        assert "Traceback" not in err


def test_experiments_command(capsys):
    code, out, _ = call(capsys, "experiments")
    assert code == 0
    assert all(name in out for name in EXPERIMENTS)


def test_a_failed_trial_gives_exit_code_1_and_is_named(tmp_path, capsys):
    trial = experiment("metric").trials(SMOKE)[0]
    (tmp_path / "trials" / trial.key / "config.json").mkdir(parents=True)  # nothing can be written there
    code, out, _ = call(capsys, "reproduce", "metric", "rounds", "gates", "--preset", "smoke", "--out", tmp_path)
    assert code == 1
    assert f"FAILED: {trial.label}" in out
    assert "incomplete, run the command again: metric, rounds" in out
    assert "Kinds of gate" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["reproduce", "round"], "EXPERIMENTS round is not one of .*did you mean 'rounds'"),
        (["reproduce", "--preset", "quik"], "--preset quik is not one of .*did you mean 'quick'"),
        (["reproduce", "--seeds", "0"], "--seeds 0 must be an integer of at least 1"),
        (["reproduce", "--workers", "0"], "--workers 0 must be at least 1"),
        (["reproduce", "--out", "FILE"], "is a file; give a folder"),
        (["reproduce", "--out", "FILE/below"], "cannot be written to"),
        (["claims", "--out", "FILE"], "is a file"),
        (["claims", "--json", "--markdown"], "exclude each other"),
        (["experiments", "--preset", "papr"], "did you mean 'paper'"),
    ],
)
def test_bad_input(args, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("kept")
    code, out, err = call(capsys, *args)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert re.search(message, err)
    assert (tmp_path / "FILE").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["FILE"]


def test_one_command_at_a_time_writes_to_a_folder(tmp_path, capsys):
    """A second command is refused in one line while the first one runs, and fails none of its trials."""
    command = [sys.executable, "-m", "boosted_attention", "reproduce", "rounds", "--preset", "smoke", "--workers", "1"]
    first = subprocess.Popen([*command, "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while first.poll() is None and not (tmp_path / ".owner").exists():
        time.sleep(0.005)
    code, out, err = call(capsys, "reproduce", "rounds", "--preset", "smoke", "--out", tmp_path)
    assert first.wait(timeout=100) == 0, first.stderr.read()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"--out {tmp_path} is in use by another process ({first.pid})" in err
    first.communicate()


def test_the_folder_is_held_until_figures_and_page_are_written(tmp_path, capsys, monkeypatch):
    """A second command that came in between would draw one state and describe another."""
    refusals = []

    def show(found, names, out, console):
        with pytest.raises(InputError) as refusal, exclusive(out):
            pass
        refusals.append(str(refusal.value))

    monkeypatch.setattr("boosted_attention.cli.reproduce.show", show)
    code, _, _ = call(capsys, "reproduce", "rounds", "--preset", "smoke", "--workers", "1", "--out", tmp_path)
    assert code == 0
    assert len(refusals) == 1
    assert "is in use by another process" in refusals[0]
    with exclusive(tmp_path):
        pass


def test_a_folder_of_the_old_layout_is_refused_by_name(tmp_path, capsys):
    (tmp_path / "runs" / "baselines-0").mkdir(parents=True)
    (tmp_path / "runs" / "baselines-0" / "config.json").write_text('{"work": "boosted_attention.lab.work:baselines"}')
    (tmp_path / "claims.json").write_text("{}")
    for command in (["reproduce", "metric", "--preset", "smoke", "--out"], ["claims", "--out"], ["report"]):
        code, out, err = call(capsys, *command, tmp_path)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "holds results of an older layout (runs/)" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["claims.json", "runs"]


def refused(args, capsys) -> str:
    """The one line of refusal, whatever progress was shown before it."""
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    printed = capsys.readouterr()
    assert stop.value.code == 2
    lines = [line for line in printed.err.splitlines() if line.startswith("boosted-attention: ")]
    assert len(lines) == 1, printed.err
    return lines[0]


def test_bad_input_of_language_models_is_one_line(tmp_path, capsys):
    (tmp_path / "small.txt").write_text(sample_text(900))
    reproduce_it = ["reproduce", "lm-main", "--preset", "smoke", "--out", tmp_path / "out", "--corpus"]
    message = refused([*reproduce_it, f"text:{tmp_path / 'small.txt'}"], capsys)
    assert "train_tokens=4096: the training split of text:" in message
    assert " tokens" in message.partition("has ")[2]
    assert "does not exist" in refused([*reproduce_it, "text:/nowhere"], capsys)
    arena = ["reproduce", "lm-main", "lm-halting", "--preset", "arena"]
    assert "EXPERIMENTS lm-halting: --preset arena has seeds for models of lm-rewards, " in refused(arena, capsys)
    for given in (["--seeds", "3"], ["--rates", "0.5", "1", "2"], ["--corpus", "wikitext-2", "stdlib"]):
        message = refused(["reproduce", "--preset", "forms", *given], capsys)
        assert "--seeds, --rates and a second --corpus change nothing here" in message
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
    assert "finished" not in shown
    assert not any(tmp_path.iterdir())


def test_the_plan_says_what_finished_trainings_took(capsys, tmp_path, monkeypatch, text_file):
    monkeypatch.setenv("COLUMNS", "120")
    corpus = f"text:{text_file}"
    (trial, *_) = trainings(["lm-main"], SMOKE.with_corpora([corpus]))
    (tmp_path / FOLDER / trial.key).mkdir(parents=True)
    write_record(tmp_path / FOLDER / trial.key, trial, {}, 1.0, 7200.0)
    with pytest.raises(SystemExit):
        main(["reproduce", "lm-main", "--preset", "smoke", "--corpus", corpus, "--plan", "--out", str(tmp_path)])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "finished, as spent" in line)
    assert line.split()[-3:] == ["1", "2.0", "h"]
