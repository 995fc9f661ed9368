"""The command as a user meets it, in a process of its own."""

import os
import subprocess
import sys

import pytest

from boosted_attention import list_attention
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.cli.main import main


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "boosted_attention", *args]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment, check=False)


def test_check_passes_every_layer():
    done = run("check", "--length", "9")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[1]: line for line in done.stdout.splitlines() if line.startswith("│")}
    assert set(list_attention()) == set(rows)
    assert all(row.split()[-2] == "ok" for row in rows.values())
    assert f"{len(rows)} of {len(rows)} layers exact" in done.stdout


def test_check_fails_when_a_layer_is_wrong(monkeypatch, capsys):
    """A layer that is off by one part in a million, and that lets the future in, is named and the exit code is 1."""
    forward = AttentionLayer.forward

    def wrong(self, x, **call):
        y = forward(self, x, **call)
        return y + 1e-6 * y.roll(-1, dims=1) if self.config.learner == "twicing" else y

    monkeypatch.setattr(AttentionLayer, "forward", wrong)
    with pytest.raises(SystemExit) as stop:
        main(["check", "standard", "twicing", "--length", "9"])
    assert stop.value.code == 1
    printed = capsys.readouterr().out
    assert "FAILED" in printed
    assert "NO" in printed
    assert "1 of 2 layers exact, 1 FAILED" in printed


def test_check_survives_a_layer_that_raises_and_finds_a_nan(monkeypatch, capsys):
    forward = AttentionLayer.forward

    def broken(self, x, **call):
        if self.config.learner == "twicing":
            raise RuntimeError("no such operation here")
        y = forward(self, x, **call)
        return y * float("nan") if "cache" in call and self.config.learner == "gated" else y

    monkeypatch.setattr(AttentionLayer, "forward", broken)
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        main(["check", "standard", "twicing", "gated", "--length", "9"])
    assert stop.value.code == 1
    printed = capsys.readouterr().out
    assert "RuntimeError: no such operation here" in printed
    assert "cached decoding off by nan" in printed
    assert "1 of 3 layers exact, 2 FAILED" in printed


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["chek"], "no command 'chek'; did you mean 'check'?"),
        (["check", "boostd"], "did you mean 'boosted'?"),
        (["check", "--devce", "cuda"], "--devce, cuda; did you mean --device?"),
        (["check", "--device", "abacus"], "--device abacus cannot be used"),
        (["check", "--length", "abc"], "--length"),
        (["check", "--length", "1"], "--length 1 must lie between 2 and 512"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(args, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(args)
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_help(capsys):
    for args, expected in ((["--help"], "usage: boosted-attention COMMAND"), (["check", "--help"], "Example:")):
        with pytest.raises(SystemExit) as stop:
            main(args)
        assert stop.value.code == 0
        assert expected in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == "boosted-attention 0.1.0\n"


def test_one_line_is_one_line_whatever_libraries_remark(tmp_path):
    """torchao, where it is installed, remarks on kernels of other machines when transformers imports it."""
    done = run("export", tmp_path / "nowhere", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr == f"boosted-attention: {tmp_path / 'nowhere'} is not a run folder\n"
