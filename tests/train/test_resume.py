"""A killed run goes on as if nothing had happened: losses, weights, optimizer and order, bit for bit."""

import json
import multiprocessing
import random
import re
import shutil
import signal
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from boosted_attention import LanguageModelConfig
from boosted_attention.data.tokens import DataConfig
from boosted_attention.train import checkpoint
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.folder import load_run
from boosted_attention.train.metrics import read_metrics
from boosted_attention.train.optimizers import OPTIMIZERS
from boosted_attention.train.resume import require_same
from boosted_attention.train.run_config import RunConfig
from boosted_attention.validation import InputError
from tests.train.driver import STEPS, small_trainer, train

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.train.driver", "torch._dynamo"])


def in_process(folder: Path, text: Path, die_at=None, resume=False, kill_after=None, **training) -> int:
    process = CONTEXT.Process(target=train, args=(folder, text, die_at, resume), kwargs=training)
    process.start()
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    process.join()
    return process.exitcode


def rows_of(folder: Path):
    """Everything in metrics.jsonl but the clock."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_metrics(folder / "metrics.jsonl")]


def outcome(folder: Path):
    found, problems = checkpoint.latest(folder / "checkpoints", "step")
    assert not problems
    assert found.step == STEPS
    result = json.loads((folder / "result.json").read_text())
    return rows_of(folder), found.tensors("model"), found.tensors("optimizer"), result["test"], result["best"]["step"]


def assert_identical(ours, theirs):
    assert ours[0] == theirs[0]
    for mine, its in zip(ours[1:3], theirs[1:3], strict=True):
        assert mine.keys() == its.keys()
        assert all(torch.equal(mine[name], its[name]) for name in mine)
    assert ours[3:] == theirs[3:]


@pytest.fixture(scope="module")
def whole_with(tmp_path_factory, text_file):
    """An uninterrupted run with each optimizer, and how long it takes in a process of its own."""

    @cache
    def made(optimizer: str):
        folder = tmp_path_factory.mktemp("whole") / "run"
        started = time.monotonic()
        assert in_process(folder, text_file, optimizer=optimizer) == 0
        return outcome(folder), time.monotonic() - started

    return made


@pytest.fixture(scope="module")
def whole(whole_with):
    return whole_with("adamw")


def pytest_generate_tests(metafunc):
    """Where to kill: some writes of a checkpoint, a step, and moments by the clock; 20 of them with --full."""
    if "moment" not in metafunc.fixturenames:
        return
    full = metafunc.config.getoption("--full")
    draw = random.Random(0)
    inside = [("flush", n) for n in (2, 7, 12, 13, 24)] + [("step", n) for n in (1, 4, 9)]
    clock = [("clock", draw.uniform(0.05, 0.95)) for _ in range(12)]
    few = {"adamw": [("flush", 7), ("flush", 13), ("step", 9), clock[0]], "muon": [("flush", 13), ("step", 9)]}
    chosen = [(kind, moment) for kind in OPTIMIZERS for moment in (inside + clock if full else few[kind])]
    names = [f"{kind}-{where}-{n:.2f}" for kind, (where, n) in chosen]
    metafunc.parametrize(("optimizer", "moment"), chosen, ids=names)


def test_killed_and_resumed_is_never_killed(optimizer, moment, whole_with, text_file, tmp_path):
    expected, seconds = whole_with(optimizer)
    kind, where = moment
    folder = tmp_path / "run"
    if kind == "clock":
        in_process(folder, text_file, kill_after=where * seconds, optimizer=optimizer)
    else:
        assert in_process(folder, text_file, die_at=(kind, where), optimizer=optimizer) == -signal.SIGKILL
        assert not (folder / "result.json").exists()
    assert in_process(folder, text_file, resume=True, optimizer=optimizer) == 0
    assert_identical(outcome(folder), expected)


def test_killed_again_and_again(whole, text_file, tmp_path):
    folder = tmp_path / "run"
    for die_at in (("flush", 9), ("step", 5), ("flush", 3)):
        assert in_process(folder, text_file, die_at=die_at, resume=True) == -signal.SIGKILL
    assert in_process(folder, text_file, resume=True) == 0
    assert_identical(outcome(folder), whole[0])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_save_and_end(number, code, whole, text_file, tmp_path):
    folder = tmp_path / "run"
    process = CONTEXT.Process(target=train, args=(folder, text_file, None, False))
    process.start()
    while not read_metrics(folder / "metrics.jsonl"):
        time.sleep(0.02)
    import os

    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == code
    found, _ = checkpoint.latest(folder / "checkpoints", "step")
    assert found.step == read_metrics(folder / "metrics.jsonl")[-1]["step"]
    assert in_process(folder, text_file, resume=True) == 0
    assert_identical(outcome(folder), whole[0])


class Listener:
    def __init__(self):
        self.remarks = []

    def start(self, first, total):
        self.first = first

    def step(self, row): ...
    def evaluated(self, row): ...

    def remark(self, text):
        self.remarks.append(text)


@pytest.fixture(scope="module")
def halfway(tmp_path_factory, text_file):
    """A run that died at step 14, with checkpoints of steps 8 and 12."""
    folder = tmp_path_factory.mktemp("halfway") / "run"
    assert in_process(folder, text_file, die_at=("step", 14)) == -signal.SIGKILL
    assert sorted(p.name for p in (folder / "checkpoints").glob("step-*")) == ["step-00000008", "step-00000012"]
    return folder


@pytest.mark.parametrize("harm", ["flipped bit", "torn", "missing"])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_file_is_named_and_the_checkpoint_before_it_used(name, harm, halfway, whole, text_file, tmp_path):
    folder = shutil.copytree(halfway, tmp_path / "run")
    path = folder / "checkpoints" / "step-00000012" / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 4
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(raw if harm == "flipped bit" else raw[: len(raw) // 2])
    listener = Listener()
    small_trainer(folder, text_file, observer=listener).run(resume=True)
    assert listener.first == 8
    (remark,) = listener.remarks
    assert remark.startswith(f"{path} is {'missing' if harm == 'missing' else ''}")
    assert remark.endswith("; going on from step-00000008")
    assert_identical(outcome(folder), whole[0])


def test_large_files_are_divided(halfway, whole, text_file, tmp_path, monkeypatch):
    """As transformers divides them, with an index; a run goes on from either kind, and a damaged part is noticed."""
    monkeypatch.setattr(checkpoint, "SHARD_BYTES", 30_000)
    folder = shutil.copytree(halfway, tmp_path / "run")
    small_trainer(folder, text_file).run(resume=True)
    last = folder / "checkpoints" / f"step-{STEPS:08d}"
    index = json.loads((last / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 1
    assert files == sorted(p.name for p in last.glob("model-*.safetensors"))
    assert all((last / file).stat().st_size < 45_000 for file in files)  # one tensor may be larger than asked for
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in outcome(folder)[1].values())
    assert_identical(outcome(folder), whole[0])
    monkeypatch.setattr(checkpoint, "SHARD_BYTES", 2**31)
    (last / files[0]).write_bytes(b"torn")
    listener = Listener()
    small_trainer(folder, text_file, observer=listener).run(resume=True)
    assert listener.first < STEPS
    assert listener.remarks[0].startswith(f"{last / files[0]} is damaged")
    assert_identical(outcome(folder), whole[0])


def test_with_nothing_whole_left_it_starts_anew_and_says_so(halfway, whole, text_file, tmp_path):
    folder = shutil.copytree(halfway, tmp_path / "run")
    for path in (folder / "checkpoints").glob("step-*/model.safetensors"):
        path.write_bytes(b"")
    listener = Listener()
    small_trainer(folder, text_file, observer=listener).run(resume=True)
    assert listener.first == 0
    assert all(remark.endswith("; starting anew") for remark in listener.remarks)
    assert_identical(outcome(folder), whole[0])


def test_other_settings_and_other_data_are_refused(halfway, text_file, tmp_path):
    folder = shutil.copytree(halfway, tmp_path / "run")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(
        ValueError, match=r"training\.lr \(0\.001 there, 0\.01 here\); training\.seed \(3 there, 4 here\)"
    ):
        small_trainer(folder, text_file, lr=0.01, seed=4).run(resume=True)
    with pytest.raises(ValueError, match=r"model\.attention \('boosted' there, 'standard' here\)"):
        small_trainer(folder, text_file, model={"attention": "standard"}).run(resume=True)
    with pytest.raises(ValueError, match="holds a run already; resume=True continues it"):
        small_trainer(folder, text_file).run()
    trainer = small_trainer(folder, text_file)
    splits = trainer.data.manifest.splits
    splits["train"] = replace(splits["train"], sha256="changed")
    with pytest.raises(ValueError, match=r"fingerprint \('"):
        trainer.run(resume=True)
    after = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert {p.name for p in set(after) ^ set(before)} <= {".lock", ".owner"}
    assert all(after[p] == before[p] for p in before if p.name not in (".lock", ".owner"))


def test_a_finished_run_resumes_to_its_result(whole, text_file, tmp_path):
    folder = tmp_path / "run"
    trainer = small_trainer(folder, text_file)
    first = trainer.run()
    rows = rows_of(folder)
    again = small_trainer(folder, text_file).run(resume=True)
    assert again == first
    assert rows_of(folder) == rows


def test_where_the_text_lies_does_not_matter(halfway, whole, text_file, tmp_path):
    folder, copy = shutil.copytree(halfway, tmp_path / "run"), tmp_path / "elsewhere.txt"
    shutil.copy(text_file, copy)
    small_trainer(folder, copy).run(resume=True)
    assert_identical(outcome(folder), whole[0])


def test_progress_is_kept_although_newer_checkpoints_were_damaged(halfway, text_file, tmp_path):
    """Steps 8 and 12 are damaged, so it starts anew; killed at step 6, it has the checkpoint of step 4."""
    folder = shutil.copytree(halfway, tmp_path / "run")
    for path in (folder / "checkpoints").glob("step-*/model.safetensors"):
        path.write_bytes(b"")
    assert in_process(folder, text_file, die_at=("step", 6), resume=True) == -signal.SIGKILL
    assert [p.name for p in (folder / "checkpoints").glob("step-*")] == ["step-00000004"]


def test_nothing_half_written_stays(whole, text_file, tmp_path):
    folder = tmp_path / "run"
    assert in_process(folder, text_file, die_at=("flush", 7)) == -signal.SIGKILL
    assert list((folder / "checkpoints").glob(".*"))
    assert in_process(folder, text_file, resume=True) == 0
    assert not list((folder / "checkpoints").glob(".*"))


def test_lost_metrics_are_remarked_and_kept_aside(halfway, text_file, tmp_path):
    folder, listener = shutil.copytree(halfway, tmp_path / "run"), Listener()
    (folder / "metrics.jsonl").write_text("[1]\n")
    small_trainer(folder, text_file, observer=listener).run(resume=True)
    assert listener.remarks == [
        f"{folder}/metrics.jsonl is damaged: its rows are not those that were sealed; rows before step 12 are lost"
    ]
    assert (folder / "metrics.old-1.jsonl").read_text() == "[1]\n"
    assert [row["step"] for row in rows_of(folder) if "loss" in row] == list(range(13, STEPS + 1))


def test_the_folder_holds_no_pickle(halfway):
    kinds = {path.suffix for path in halfway.rglob("*") if path.is_file() and not path.name.startswith(".")}
    assert kinds == {".json", ".jsonl", ".safetensors"}


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_a_lost_best_checkpoint_is_said_and_no_other_is_tested(harm, text_file, tmp_path):
    """The learning rate ruins the model from the middle on, so that no later checkpoint is better."""
    folder, listener = tmp_path / "run", Listener()
    options = {"lr": 3.0, "warmup": 20, "eval_every": 1, "clip": 0}
    whole = small_trainer(folder, text_file, **options).run()
    assert whole.best.step < 20
    assert whole.problem is None
    best = folder / "checkpoints" / f"best-{whole.best.step:08d}"
    if harm == "damaged":
        (best / "model.safetensors").write_bytes(b"torn")
        what = f"{best / 'model.safetensors'} is damaged"
    else:
        shutil.rmtree(best)
        what = f"{best / 'state.json'} is missing"
    stored = (folder / "result.json").read_bytes()
    with pytest.raises(InputError, match=re.escape(what)):
        load_run(folder)
    assert load_run(folder, "last").step == STEPS
    again = small_trainer(folder, text_file, observer=listener, **options).run(resume=True)
    assert again.test is None
    assert again.problem.startswith(what)
    assert f"; the best checkpoint, of step {whole.best.step}, is lost" in again.problem
    assert "resume=True" in again.problem
    assert [remark.startswith(what) for remark in listener.remarks] == [True, True]  # at the start and at the end
    assert (folder / "result.json").read_bytes() == stored  # an earlier result stays
    with pytest.raises(InputError, match="is lost"):
        again.tested()
    (folder / "result.json").unlink()
    small_trainer(folder, text_file, **options).run(resume=True)
    written = json.loads((folder / "result.json").read_text())
    assert written["test"] is None
    assert written["problem"] == again.problem


def test_a_better_evaluation_makes_up_for_a_lost_best_checkpoint(halfway, whole, text_file, tmp_path):
    folder, listener = shutil.copytree(halfway, tmp_path / "run"), Listener()
    shutil.rmtree(folder / "checkpoints" / "best-00000010")
    result = small_trainer(folder, text_file, observer=listener).run(resume=True)
    assert "best-00000010" in listener.remarks[0]
    assert result.problem is None
    assert_identical(outcome(folder), whole[0])


def test_the_best_checkpoint_of_every_kept_one_is_kept(halfway):
    names = sorted(path.name for path in (halfway / "checkpoints").iterdir())
    assert names == ["best-00000005", "best-00000010", "step-00000008", "step-00000012"]


def test_what_else_lies_among_checkpoints_is_left_alone(halfway, whole, text_file, tmp_path):
    folder = shutil.copytree(halfway, tmp_path / "run")
    checkpoints = folder / "checkpoints"
    strays = ["step-00000012-backup", "best-00000099.old", "step-99999", "step-last", "notes-00000020", ".hidden"]
    for name in strays:
        shutil.copytree(checkpoints / "step-00000012", checkpoints / name)
    (checkpoints / "step-00000099").write_text("a file")
    before = {path: path.read_bytes() for name in strays for path in (checkpoints / name).iterdir()}
    listener = Listener()
    small_trainer(folder, text_file, observer=listener).run(resume=True)
    assert (listener.first, listener.remarks) == (12, [])
    assert {path: path.read_bytes() for path in before} == before
    assert (checkpoints / "step-00000099").read_text() == "a file"
    assert load_run(folder).step == load_run(folder, "last").step == STEPS
    assert_identical(outcome(folder), whole[0])


def test_a_run_from_before_an_option_goes_on_with_its_default(tmp_path):
    ours = {
        **RunConfig(model=LanguageModelConfig(), training=TrainingConfig(), data=DataConfig()).to_dict(),
        "fingerprint": "f",
    }
    theirs = {**ours, "model": {name: v for name, v in ours["model"].items() if name != "n_repeats"}}
    require_same(tmp_path, ours, theirs)
    for changed in ({"n_repeats": 2}, {"d_model": 32}):
        with pytest.raises(InputError, match=f"other settings: model.{next(iter(changed))} "):
            require_same(tmp_path, {**ours, "model": {**ours["model"], **changed}}, theirs)
    with pytest.raises(InputError, match="other settings"):
        require_same(tmp_path, ours, {"fingerprint": "f"})
