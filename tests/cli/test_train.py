"""data, train, evaluate and generate as a user meets them."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time

import pytest
import torch

from boosted_attention.cli.main import main
from boosted_attention.cli.train import parse_option
from boosted_attention.train.folder import load_run
from boosted_attention.train.metrics import read_metrics
from boosted_attention.train.settings import read_settings, write_settings

TINY = ["--vocab-size", "300", "--d-model", "16", "--n-layers", "2", "--n-heads", "2"]
TINY += ["--max-len", "16", "--batch-size", "8"]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "boosted_attention", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def refused(args, capsys) -> str:
    """The one line that a wrong command prints; nothing else, and exit code 2."""
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("boosted-attention: ")
    assert printed.err.count("\n") == 1, printed.err
    return printed.err


@pytest.fixture(scope="module")
def trained(tmp_path_factory, text_file):
    folder = tmp_path_factory.mktemp("cli") / "run"
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "train",
                "--corpus",
                f"text:{text_file}",
                "--steps",
                "12",
                "--eval-every",
                "6",
                "--out",
                str(folder),
                *TINY,
            ]
        )
    assert stop.value.code == 0
    return folder


def test_the_whole_way_in_processes_of_their_own(text_file, tmp_path):
    """data, train, evaluate and generate, one after the other."""
    out = tmp_path / "run"
    done = run("data", f"text:{text_file}", "--vocab-size", "300")
    assert done.returncode == 0, done.stderr
    assert "bytes per token" in done.stdout
    options = ["--attention-options", "n_rounds=3", "gate=scalar", "--boosted-layers", "last:1"]
    done = run("train", "--corpus", f"text:{text_file}", "--steps", "12", "--out", str(out), *options, *TINY)
    assert done.returncode == 0, done.stderr
    assert "test perplexity" in done.stdout
    assert "boosted attention, " in done.stderr
    assert "step 12: validation loss" in done.stderr
    config = json.loads((out / "config.json").read_text())
    assert config["model"]["attention_options"] == {"n_rounds": 3, "gate": "scalar"}
    assert config["model"]["boosted_layers"] == "last:1"
    done = run("evaluate", str(out), "--json", "--stride", "4")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["step"] == 12
    assert found["bits_per_byte"] > 0
    done = run("generate", str(out), "ba", "--tokens", "9", "--temperature", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ba")


def test_resume_on_the_command_line(text_file, tmp_path):
    """A long run, stopped by SIGTERM, says so with 143 and goes on."""
    out = tmp_path / "run"
    args = [
        "train",
        "--corpus",
        f"text:{text_file}",
        "--steps",
        "100000",
        "--held-out-tokens",
        "100",
        "--out",
        str(out),
        *TINY,
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "boosted_attention", *args], stderr=subprocess.PIPE, text=True
    ) as process:
        while len(read_metrics(out / "metrics.jsonl")) < 5:
            assert process.poll() is None
            time.sleep(0.05)
        assert "is in use by another process" in run(*args).stderr
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert process.returncode == 143
    assert "stopped by SIGTERM after step" in said
    again = run(*args, "--lr", "0.1", "--resume")
    assert again.returncode == 2
    assert "training.lr (0.001 there, 0.1 here)" in again.stderr
    before = len(read_metrics(out / "metrics.jsonl"))
    with subprocess.Popen(
        [sys.executable, "-m", "boosted_attention", *args, "--resume"], stderr=subprocess.DEVNULL
    ) as process:
        while len(read_metrics(out / "metrics.jsonl")) < before + 5:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    steps = [row["step"] for row in read_metrics(out / "metrics.jsonl") if "loss" in row]
    assert steps == list(range(1, len(steps) + 1))


def test_evaluate_another_corpus_and_the_papers_protocol(trained, text_file, tmp_path, capsys):
    (tmp_path / "other.txt").write_text(text_file.read_text()[:20_000])
    for options in (["--corpus", f"text:{tmp_path / 'other.txt'}"], ["--protocol", "paper"], ["--split", "validation"]):
        with pytest.raises(SystemExit) as stop:
            main(["evaluate", str(trained), *options])
        assert stop.value.code == 0
        assert "perplexity" in capsys.readouterr().out


def test_generate_samples_and_seeds(trained, capsys):
    texts = []
    for seed in ("1", "1", "2"):
        with pytest.raises(SystemExit):
            main(["generate", str(trained), "ba", "--seed", seed, "--samples", "2", "--tokens", "20"])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("--- 1 ---\nba")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "--attention", "boostd"], "did you mean 'boosted'?"),
        (["train", "--recipe", "minni"], "--recipe minni is not one of"),
        (["train", "--atention", "boosted"], "did you mean --attention?"),
        (["train", "--steps", "many"], "--steps"),
        (["train", "--attention-options", "n_rounds"], "'n_rounds' must be NAME=VALUE"),
        (["train", "--attention-options", "n_round=3"], "did you mean 'n_rounds'"),
        (["train", "--device", "abacus"], "--device abacus cannot be used"),
        (["train", "--checkpoint-every", "0"], "--checkpoint-every 0"),
        (["train", "--corpus", "text:/nowhere/at/all"], "/nowhere/at/all does not exist"),
        (["train", "--corpus", "wikitext2"], "did you mean 'wikitext-2'"),
        (["train", "--vocab-size", "100"], "needs at least 257"),
        (["train", "--steps", "3", "--epochs", "2"], "--steps and --epochs exclude each other"),
        (["train", "--seed", "100000000000000000000"], "must lie in [0, 2**63)"),
        (["train", "--schedule", "liner"], "did you mean 'linear'"),
        (["train", "--weight-decay-on", "norms"], "--weight-decay-on norms is not one of 'all', 'matrices'"),
        (["train", "--attention", "boosted-low-rank", "--attention-options", "rank=0"], "rank=0 must be a multiple of"),
        (["train", "--attention-options", "halting=True"], "halting=True with kv_source='residual': a token that"),
        (["train", "--n-repeats", "0"], "--n-repeats 0 must be an integer of at least 1"),
        (["train", "--attention", "parallax", "--attention-options", "kernel=fused"], "kernel='fused' with learner="),
        (["train", "--attention-options", "kernel=fused"], "kernel='fused' keeps no attention weights"),
        (["train", "--attention-options", "halting=act"], "--attention-options: halting='act' must be True or False"),
        (["train", "--ponder-cost", "0.5"], "--ponder-cost 0.5 has no use where no token halts"),
        (["data", "text:/nowhere"], "/nowhere does not exist"),
        (["data", "--vocab-size", "0"], "--vocab-size 0"),
        (["evaluate", "/nowhere"], "/nowhere is not a run folder"),
        (["generate", "/nowhere", "x"], "/nowhere is not a run folder"),
    ],
)
def test_bad_input_is_one_line(args, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused(args, capsys)
    assert not any(tmp_path.iterdir())  # nothing written


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--optimizer", "moun"], "--optimizer moun is not one of 'adamw', 'muon'; did you mean 'muon'?"),
        (["--matrix-lr", "0.1"], "--matrix-lr 0.1 has no use with --optimizer adamw, whose one rate is --lr"),
        (["--attention", "standard", "--gate-lr-factor", "2"], "--gate-lr-factor 2.0 must be 1: nothing that is"),
        (["--attention", "standard", "--correction-lr-factor", "2"], "--correction-lr-factor 2.0 must be 1: nothing"),
    ],
)
def test_options_of_the_optimizer_that_concern_nothing_are_one_line(options, message, text_file, tmp_path, capsys):
    out = tmp_path / "run"
    assert message in refused(["train", "--corpus", f"text:{text_file}", "--out", out, *TINY, *options], capsys)
    assert not out.exists()


def test_bad_files_are_one_line(tmp_path, capsys, trained, text_file):
    out = tmp_path / "run"
    train = ["train", "--out", out, *TINY, "--corpus"]
    (tmp_path / "empty.txt").write_text("")
    assert "is empty" in refused([*train, f"text:{tmp_path / 'empty.txt'}"], capsys)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " * 100)
    assert "latin.txt is not UTF-8: byte 0xe9 at offset 3" in refused(
        [*train, f"text:{tmp_path / 'latin.txt'}"], capsys
    )
    (tmp_path / "short.txt").write_text("few words\n" * 30)
    message = refused([*train, f"text:{tmp_path / 'short.txt'}"], capsys)
    assert "the text supports only" in message
    message = refused([*train, f"text:{tmp_path / 'short.txt'}", "--tokenizer", "bytes", "--batch-size", "64"], capsys)
    assert "one batch of 64 rows of 16 needs" in message
    assert not out.exists()
    torch.save({"model": torch.zeros(3)}, tmp_path / "model.pt")
    assert "pickles are never loaded" in refused(["evaluate", tmp_path / "model.pt"], capsys)
    assert "holds a run already" in refused(
        ["train", "--out", trained, "--corpus", f"text:{text_file}", "--steps", "12", "--eval-every", "6", *TINY],
        capsys,
    )


def test_wrong_options_of_evaluate_and_generate(trained, capsys):
    for args, message in (
        (["evaluate", trained, "--batch-size", "0"], "--batch-size 0 must be at least 1"),
        (["evaluate", trained, "--device", "abacus"], "--device abacus cannot be used"),
        (["evaluate", trained, "--stride", "99"], "--stride 99 must lie between 1 and max_len=16"),
        (["generate", trained, "--device", "abacus"], "--device abacus cannot be used"),
        (["generate", trained, "--temperature", "nan"], "--temperature nan"),
        (["generate", trained, "--top-p", "0"], "--top-p 0.0"),
        (["generate", trained, ""], "has no token of this vocabulary"),
    ):
        assert message in refused(args, capsys)


def test_a_corpus_that_changed_is_noticed(text_file, tmp_path, capsys):
    text, out = tmp_path / "words.txt", tmp_path / "run"
    text.write_text(text_file.read_text())
    with pytest.raises(SystemExit):
        main(["train", "--corpus", f"text:{text}", "--steps", "2", "--out", str(out), *TINY, "--tokenizer", "bytes"])
    text.write_text(text_file.read_text() + "more\n")
    capsys.readouterr()
    assert "has changed since the run was trained" in refused(["evaluate", out], capsys)


def test_steps_take_the_place_of_a_recipes_epochs(text_file, tmp_path):
    out = tmp_path / "run"
    args = [
        "train",
        "--recipe",
        "paper-small",
        "--corpus",
        f"text:{text_file}",
        "--steps",
        "2",
        "--out",
        str(out),
        *TINY,
    ]
    with pytest.raises(SystemExit) as stop:
        main([*args, "--tokenizer", "bytes", "--train-tokens", "2000"])
    assert stop.value.code == 0
    assert json.loads((out / "result.json").read_text())["steps"] == 2


def test_a_reader_that_leaves_is_no_error(trained):
    command = f"{sys.executable} -m boosted_attention generate {trained} ba --tokens 500 --no-stop | head -c 3"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert b"Traceback" not in done.stderr


def test_a_spoiled_run_is_one_line(tmp_path, capsys, trained, text_file):
    import shutil

    run_folder = shutil.copytree(trained, tmp_path / "run")
    weights = next(run_folder.glob("checkpoints/best-*/model.safetensors"))
    good = weights.read_bytes()
    weights.write_bytes(pickle.dumps({"weights": 1}))
    assert "model.safetensors is damaged" in refused(["evaluate", run_folder], capsys)
    weights.write_bytes(good)
    tokenizer = (run_folder / "tokenizer.json").read_text()
    other = tmp_path / "other"
    with pytest.raises(SystemExit):
        main(
            [
                "train",
                "--corpus",
                f"text:{text_file}",
                "--steps",
                "1",
                "--out",
                str(other),
                *TINY,
                "--vocab-size",
                "310",
            ]
        )
    capsys.readouterr()
    shutil.copy(other / "tokenizer.json", run_folder / "tokenizer.json")
    message = refused(["generate", run_folder, "ba"], capsys)
    assert "tokenizer.json is damaged" in message
    write_settings(run_folder, read_settings(run_folder).settings)  # sealed again
    assert "tokenizer.json has 310 tokens, the model 300" in refused(["generate", run_folder, "ba"], capsys)
    (run_folder / "tokenizer.json").write_text(tokenizer)
    (run_folder / "config.json").write_text("{")
    assert "config.json is not JSON" in refused(["evaluate", run_folder], capsys)
    (run_folder / "config.json").unlink()
    assert "it has no config.json" in refused(["evaluate", run_folder], capsys)


def test_help_shows_the_recipes_values_and_an_example(capsys):
    for args, expected in (
        (["train", "--help"], "(default: 64)"),
        (["train", "--recipe", "paper-small-wide", "--help"], "(default: 288)"),
        (["data", "--help"], "Example:"),
        (["evaluate", "--help"], "Example:"),
        (["generate", "--help"], "Example:"),
        (["train", "--help"], "Example:"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(args)
        assert stop.value.code == 0
        assert expected in capsys.readouterr().out


def test_layers_that_halt_have_a_price_on_the_command_line(text_file, tmp_path):
    """The options of the layer come after those of the model, which know of no halting yet."""
    layer = ["--attention", "boosted-shared", "--attention-options", "n_rounds=3", "halting=True"]
    out = tmp_path / "run"
    options = ["--steps", "1", *layer, "--ponder-cost", "0.001"]
    with pytest.raises(SystemExit) as stop:
        main(["train", "--corpus", f"text:{text_file}", "--out", str(out), *TINY, *options])
    assert stop.value.code == 0
    assert load_run(out).config.model.to_dict()["ponder_cost"] == 0.001


def test_options_of_the_layer_are_typed():
    assert dict(map(parse_option, ["n_rounds=3", "gate=scalar", "n_kv_heads=[4,2]", "bias=false", "halting=True"])) == {
        "n_rounds": 3,
        "gate": "scalar",
        "n_kv_heads": [4, 2],
        "bias": False,
        "halting": True,
    }


def test_the_terminal_shows_a_live_line(text_file, tmp_path):
    """In a real terminal: loss, speed and time left."""
    import pty

    parent, child = pty.openpty()
    args = ["train", "--corpus", f"text:{text_file}", "--steps", "40", "--out", str(tmp_path / "run"), *TINY]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-m", "boosted_attention", *args]
    with subprocess.Popen(command, stderr=child, stdout=subprocess.DEVNULL, env=environment) as process:
        os.close(child)
        shown = b""
        try:
            while chunk := os.read(parent, 65_536):
                shown += chunk
        except OSError:
            pass  # the other end is closed
        process.wait()
    os.close(parent)
    assert process.returncode == 0
    text = shown.decode()
    assert "tokens/s" in text
    assert "left" in text
    assert "loss" in text
