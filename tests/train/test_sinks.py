"""Copies of metrics.jsonl for other tools: complete, without repetition, and of no consequence for the training."""

import csv
import hashlib
import re
import socket

import pytest

from boosted_attention.cli.main import main
from boosted_attention.train import sinks
from boosted_attention.train.metrics import read_metrics
from boosted_attention.train.sinks import SINKS, CsvSink, SinkEntry
from boosted_attention.validation import InputError
from tests.train.driver import small_trainer

STEPS = 6


class CrashError(Exception):
    pass


class Listener:
    """Notes remarks, and ends a training as a crash would, after some step."""

    def __init__(self, last=None):
        self.remarks, self.last = [], last

    def start(self, first, total): ...

    def evaluated(self, row): ...

    def step(self, row):
        if row.step == self.last:
            raise CrashError

    def remark(self, text):
        self.remarks.append(text)


def trained(folder, text_file, *log, last=None, resume=False):
    """Train a few steps with sinks; with ``last``, up to a crash. Returns the remarks."""
    listener = Listener(last)
    trainer = small_trainer(folder, text_file, steps=STEPS, eval_every=3, checkpoint_every=2, observer=listener)
    trainer.log_to = log
    if last is None:
        trainer.run(resume=resume)
    else:
        with pytest.raises(CrashError):
            trainer.run(resume=resume)
    return listener.remarks


def rows_of(folder):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_metrics(folder / "metrics.jsonl")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, text_file):
    """An uninterrupted run without copies."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    trained(folder, text_file)
    return folder


def table(folder):
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def assert_is_a_copy(lines, folder):
    rows = read_metrics(folder / "metrics.jsonl")
    assert [int(line["step"]) for line in lines] == [row["step"] for row in rows]
    for line, row in zip(lines, rows, strict=True):
        numbers = {name: v for name, v in row.items() if isinstance(v, int | float)}
        assert {name: float(v) for name, v in line.items() if v != ""} == numbers


def test_a_table_of_all_numbers(whole, text_file, tmp_path):
    folder = tmp_path / "run"
    assert trained(folder, text_file, "csv", "csv") == []
    assert_is_a_copy(table(folder), folder)
    assert list(table(folder)[0]) == [
        *("step", "loss", "lr", "grad_norm", "tokens"),
        *("validation_loss", "validation_perplexity", "validation_bits_per_byte", "seconds"),
    ]
    assert rows_of(folder) == rows_of(whole)


@pytest.mark.parametrize("last", [1, 5])  # before the first checkpoint, and one step behind the second
def test_a_resumed_run_continues_its_copies(last, whole, text_file, tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "run"
    trained(folder, text_file, "csv", "tensorboard", last=last)
    assert trained(folder, text_file, "csv", "tensorboard", resume=True) == []
    assert_is_a_copy(table(folder), folder)
    board = event_accumulator.EventAccumulator(str(folder / "tensorboard")).Reload()
    rows = rows_of(folder)
    assert rows == rows_of(whole)
    for name in ("loss", "validation_loss"):
        shown = [(event.step, event.value) for event in board.Scalars(name)]
        assert shown == [(row["step"], pytest.approx(row[name])) for row in rows if name in row]


def test_copies_that_begin_late_are_whole(text_file, tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "run"
    trained(folder, text_file, last=5)
    trained(folder, text_file, "csv", "tensorboard", resume=True)
    assert_is_a_copy(table(folder), folder)
    board = event_accumulator.EventAccumulator(str(folder / "tensorboard")).Reload()
    assert [event.step for event in board.Scalars("loss")] == [row["step"] for row in rows_of(folder) if "loss" in row]


@pytest.mark.parametrize("method", ["begin", "log", "finish"])
def test_a_sink_that_fails_changes_nothing(method, whole, text_file, tmp_path, monkeypatch):
    class Failing(CsvSink):
        pass

    def fail(self, *row):
        getattr(super(Failing, self), method)(*row)
        raise RuntimeError("the disk is full\nof something")

    setattr(Failing, method, fail)
    monkeypatch.setitem(SINKS, "csv", SinkEntry(Failing, None))
    folder = tmp_path / "run"
    remarks = trained(folder, text_file, "csv")
    assert remarks == ["csv failed and gets no more rows, metrics.jsonl has all: the disk is full"]
    assert rows_of(folder) == rows_of(whole)
    assert (folder / "result.json").exists()


@pytest.mark.parametrize("command", [["train"], ["finetune", "model"]])
def test_help_names_every_sink(command, capsys):
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    shown = " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╰]", "", capsys.readouterr().out).split())
    assert f"one or several: {', '.join(SINKS)}." in shown


def test_a_wrong_name_and_a_missing_package(text_file, tmp_path, capsys, monkeypatch):
    wrong = ["train", "--corpus", f"text:{text_file}", "--out", str(tmp_path / "run"), "--log-to", "csv"]
    monkeypatch.setattr(sinks, "find_spec", lambda name: None)
    for name, line in {
        "tensorbord": "--log-to tensorbord is not one of 'tensorboard', 'trackio', 'csv'; did you mean 'tensorboard'?",
        "trackio": "--log-to trackio needs trackio: pip install 'boosted-attention[trackio]'",
    }.items():
        with pytest.raises(SystemExit) as stop:
            main([*wrong, name])
        assert (stop.value.code, capsys.readouterr().err) == (2, f"boosted-attention: {line}\n")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="log_to='tensorboard' needs tensorboard: pip install"):
        sinks.require_sinks(["tensorboard"])


@pytest.fixture
def trackio(tmp_path, monkeypatch):
    """The package, told to stay in a folder, the same for all tests; connections are refused and noted."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path.parent / "trackio"))
    for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    tried = []

    def refuse(self, address):
        tried.append(address)
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield pytest.importorskip("trackio", reason="trackio is not installed: pip install 'boosted-attention[trackio]'")
    assert not tried


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("last", [1, 5])  # before the first checkpoint, and behind it
def test_trackio_offline(last, trackio, whole, text_file, tmp_path, capsys):
    folder = tmp_path / "run"
    trained(folder, text_file, "trackio", last=last)
    assert trained(folder, text_file, "trackio", resume=True) == []
    assert capsys.readouterr().out == ""
    name = f"run-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]}"
    (run,) = [run for run in trackio.Api().runs("boosted-attention") if run.name == name]
    assert run.config["training"]["steps"] == STEPS
    from trackio.sqlite_storage import SQLiteStorage

    logged = SQLiteStorage.get_logs("boosted-attention", run.name, run_id=run.id)
    rows = rows_of(folder)
    assert rows == rows_of(whole)
    for name in ("loss", "validation_loss"):
        shown = [(row["step"], row[name]) for row in logged if name in row]
        assert sorted(shown) == [(row["step"], row[name]) for row in rows if name in row]
    assert list((tmp_path.parent / "trackio").glob("*.db"))
