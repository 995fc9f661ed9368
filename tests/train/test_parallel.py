"""Training under the real torchrun: any number of processes gives one process's losses, checkpoints and refusals."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.run import get_args_parser

from boosted_attention.cli import finetune, train
from boosted_attention.cli.wording import Wording
from boosted_attention.train import checkpoint
from boosted_attention.train.folder import load_run
from boosted_attention.train.metrics import read_metrics
from boosted_attention.train.parallel import ALONE, Parallel
from tests.processes import environment
from tests.train.one_update import updated

SMALL = ["--tokenizer", "bytes", "--d-model", "32", "--n-layers", "2", "--n-heads", "4", "--max-len", "32"]
SMALL += ["--dropout", "0.1", "--batch-size", "8", "--horizon", "0", "--eval-every", "6"]
BOUNDS = {"float32": 1e-5, "float64": 1e-11}
FEW_STEPS, FEW_STEPS_BOUND = 12, 1e-12  # in float64
MUON = ["--optimizer", "muon", "--lr", "8e-3"]


def command(processes: int, *options: object, restarts: int = 0, before: tuple[str, ...] = ()) -> list[str]:
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        start += ["--max-restarts", str(restarts), "--monitor-interval", "0.1"]
    return [*start, *(before or ("-m", "boosted_attention")), *map(str, options)]


def run(processes: int, *options: object, fails: bool = False, **more) -> subprocess.CompletedProcess:
    """torchrun itself ends with 1 whatever its processes ended with; its report says with what."""
    done = subprocess.run(
        command(processes, *options, **more), capture_output=True, text=True, timeout=240, env=environment()
    )
    assert (done.returncode != 0) == fails, done.stderr[-3000:]
    return done


def training(text_file, out, *more, steps=10):
    return ["train", "--corpus", f"text:{text_file}", *SMALL, "--steps", steps, "--out", out, *more]


def assert_same_losses(one: Path, other: Path, bound: float) -> None:
    a, b = (read_metrics(folder / "metrics.jsonl") for folder in (one, other))
    assert [row["step"] for row in a] == [row["step"] for row in b]
    for mine, theirs in zip(a, b, strict=True):
        for key in ("loss", "validation_loss", "grad_norm"):
            if key in mine:
                assert theirs[key] == pytest.approx(mine[key], rel=10 * bound if key == "grad_norm" else bound), mine
        assert mine.get("batch") == theirs.get("batch")
    results = [json.loads((folder / "result.json").read_text()) for folder in (one, other)]
    assert results[1]["test"]["loss"] == pytest.approx(results[0]["test"]["loss"], rel=bound)
    assert results[1]["test"]["tokens"] == results[0]["test"]["tokens"]


def grid(full: bool):
    """Few steps in float64, whose differences are bugs; runs that stop and go on are compared in float32."""
    few = [(2, kind, "boosted", "float64", FEW_STEPS) for kind in ("ddp", "fsdp")]
    if not full:
        return few
    return few + [
        (n, kind, attention, precision, 50)
        for attention in ("boosted", "twicing", "differential")
        for precision in BOUNDS
        for n in (2, 4)
        for kind in ("ddp", "fsdp")
    ]


def grid_of_muon(full: bool):
    if not full:
        return [(2, kind, "boosted") for kind in ("ddp", "fsdp")]
    return [(n, kind, a) for a in ("boosted", "gated", "differential") for n in (2, 4) for kind in ("ddp", "fsdp")]


DEPTHS = {  # how layers are fed and repeated
    "layers that halt": ["--attention", "boosted-shared", "--attention-options", "halting=true", "n_rounds=4"],
    "act": ["--n-repeats", "2", "--halting", "act", "--value-residual"],
    "ponder": ["--n-repeats", "3", "--halting", "ponder"],
    "cross": ["--feed", "cross", "--value-residual"],
    "attention": ["--feed", "attention", *MUON],
}


def grid_of_depths(full: bool):
    """Cases of the full run alone: tests/model has what one process can show."""
    return [(name, kind) for name in DEPTHS for kind in ("ddp", "fsdp")] if full else []


def pytest_generate_tests(metafunc):
    if "depth_case" in metafunc.fixturenames:
        cases = grid_of_depths(metafunc.config.getoption("--full"))
        metafunc.parametrize("depth_case", cases, ids=lambda case: "-".join(map(str, case)))
    if "muon_case" in metafunc.fixturenames:
        cases = grid_of_muon(metafunc.config.getoption("--full"))
        metafunc.parametrize("muon_case", cases, ids=lambda case: "-".join(map(str, case)))
    if "case" in metafunc.fixturenames:
        cases = grid(metafunc.config.getoption("--full"))
        metafunc.parametrize("case", cases, ids=lambda case: "-".join(map(str, case)))


@pytest.fixture(scope="module")
def alone(text_file, tmp_path_factory):
    """Runs of one process, each made once."""
    made: dict[tuple, Path] = {}

    def get(attention="boosted", precision="float32", steps=10, *more):
        key = (attention, precision, steps, *more)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("alone") / "run"
            options = ["--attention", attention, "--precision", precision, *more]
            run(1, *training(text_file, made[key], *options, steps=steps))
        return made[key]

    return get


def test_torchrun_takes_no_option_of_ours_for_its_own():
    """A name that is the beginning of one of its own would be refused before we see it."""
    theirs = {name.replace("_", "-") for action in get_args_parser()._actions for name in action.option_strings}
    for run_of in (train.prepare([]), finetune.prepare([])):
        for name in Wording(run_of).options:
            flag = f"--{name.replace('_', '-')}"
            assert not any(other.startswith(flag) for other in theirs), flag


def test_any_number_of_processes(case, alone, text_file, tmp_path):
    n, kind, attention, precision, steps = case
    options = ["--attention", attention, "--precision", precision, "--accumulate", 4, "--log-to", "csv"]
    done = run(n, *training(text_file, tmp_path / "run", *options, "--parallel", kind, steps=steps))
    assert f"{n} processes ({kind})" in done.stderr
    assert done.stdout.count("test perplexity") == 1  # one process speaks
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    lines = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines[1:]] == [str(row["step"]) for row in rows]  # and writes
    reference = alone(attention, precision, steps, "--accumulate", "4")
    assert_same_losses(reference, tmp_path / "run", FEW_STEPS_BOUND if steps == FEW_STEPS else BOUNDS[precision])
    one, other = (load_run(folder) for folder in (reference, tmp_path / "run"))
    assert one.model.state_dict().keys() == other.model.state_dict().keys()


def test_any_number_of_processes_however_layers_are_fed_and_repeated(depth_case, alone, text_file, tmp_path):
    name, kind = depth_case
    run(2, *training(text_file, tmp_path / "run", "--precision", "float64", *DEPTHS[name], "--parallel", kind))
    reference = alone("boosted", "float64", 10, *DEPTHS[name])
    assert_same_losses(reference, tmp_path / "run", BOUNDS["float64"])


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_any_number_of_processes_on_packed_documents(kind, documents_file, tmp_path, full):
    if not full:
        pytest.skip("in make test-full")
    options = ["--precision", "float64", "--accumulate", 2, "--pack", "documents", "--protocol", "documents"]
    run(1, *training(documents_file, tmp_path / "one", *options))
    run(2, *training(documents_file, tmp_path / "two", *options, "--parallel", kind))
    assert_same_losses(tmp_path / "one", tmp_path / "two", BOUNDS["float64"])


def test_any_number_of_processes_with_muon(muon_case, alone, text_file, tmp_path):
    """In float64, where the iteration is exact: losses and weights of one process after 12 steps."""
    n, kind, attention = muon_case
    options = ["--attention", attention, "--precision", "float64", *MUON]
    run(n, *training(text_file, tmp_path / "run", *options, "--parallel", kind, steps=FEW_STEPS))
    reference = alone(attention, "float64", FEW_STEPS, *MUON)
    assert_same_losses(reference, tmp_path / "run", FEW_STEPS_BOUND)
    one, other = (load_run(folder, "last").model.state_dict() for folder in (reference, tmp_path / "run"))
    for name, weight in one.items():
        torch.testing.assert_close(other[name], weight, rtol=0, atol=FEW_STEPS_BOUND)


def test_fsdp_divides_the_model_among_several_processes():
    assert Parallel(strategy="fsdp", rank=1, world=2).shards
    assert not Parallel(strategy="fsdp").shards
    assert not Parallel(strategy="ddp", rank=1, world=2).shards


def test_a_divided_matrix_is_updated_as_a_whole_one(tmp_path):
    """From equal gradients bit for bit, although the iteration works in bfloat16 and rows do not divide evenly."""
    run(2, "fsdp", tmp_path / "weights", before=("-m", "tests.train.one_update"))
    whole, divided = updated(ALONE), load_file(tmp_path / "weights")
    assert whole.keys() == divided.keys()
    for name, weight in whole.items():
        if name.startswith("layers.") and weight.ndim == 2:
            assert torch.equal(divided[name], weight), name
        else:  # AdamW's kernel rounds the ends of shards otherwise
            torch.testing.assert_close(divided[name], weight, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("optimizer", [[], MUON], ids=["adamw", "muon"])
def test_what_two_saved_others_go_on_with(optimizer, alone, text_file, tmp_path, full):
    """2 processes, then 1, then 4 of another kind, and back: as if nothing had happened."""
    if optimizer and not full:
        pytest.skip("in make test-full")
    precision = "float64" if full else "float32"
    out = tmp_path / "run"
    options = ["--precision", precision, "--checkpoint-every", 2, "--resume", *optimizer]
    options = training(text_file, out, *options, steps=10)
    for n, kind, until in [(2, "fsdp", 3), (1, "ddp", 5), (4 if full else 2, "ddp", 7), (2, "fsdp", 10)]:
        stopper = tmp_path / "stop.py"
        stopper.write_text(STOP_AFTER.format(step=until))
        done = run(n, *options, "--parallel", kind, before=(str(stopper),), fails=until < 10)
        if until < 10:
            assert f"after step {until}" in done.stderr, done.stderr[-2000:]
            assert checkpoint.latest(out / "checkpoints", "step")[0].step == until
    assert_same_losses(alone("boosted", precision, 10, *optimizer), out, BOUNDS[precision])


STOP_AFTER = """
import os, signal
from boosted_attention.cli.main import main
from boosted_attention.train.loop import TrainingLoop

original = TrainingLoop._step
def step(self):
    if self.done + 1 == {step} and self.parallel.main and {step} < self.total:
        os.kill(os.getpid(), signal.SIGTERM)  # to one process only; all stop after the same step
    return original(self)
TrainingLoop._step = step
main()
"""


def test_a_killed_process_is_restarted(alone, text_file, tmp_path, full):
    """torchrun starts the job anew, which goes on from its last checkpoint by itself."""
    draw = random.Random(0)
    for trial in range(5 if full else 1):
        out = tmp_path / f"run{trial}"
        killer = tmp_path / "kill.py"
        killer.write_text(KILL_AT.format(step=draw.randint(3, 9), rank=draw.randint(0, 1), mark=tmp_path / f"m{trial}"))
        kind = draw.choice(["ddp", "fsdp"])
        done = run(
            2, *training(text_file, out, "--checkpoint-every", 2, "--parallel", kind), before=(str(killer),), restarts=3
        )
        assert (tmp_path / f"m{trial}").exists()
        assert "]: Traceback" not in done.stderr, done.stderr
        assert_same_losses(alone(), out, BOUNDS["float32"])


KILL_AT = """
import os, signal
from pathlib import Path
from boosted_attention.cli.main import main
from boosted_attention.train.loop import TrainingLoop

original = TrainingLoop._step
def step(self):
    if self.done + 1 == {step} and self.parallel.rank == {rank} and not Path("{mark}").exists():
        Path("{mark}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self)
TrainingLoop._step = step
main()
"""


@pytest.mark.parametrize("whom", ["torchrun", "all"])
def test_sigterm_to_the_job_saves(text_file, tmp_path, whom, full):
    """To torchrun, which passes it on, or to all processes at once, as schedulers do."""
    if whom == "torchrun" and not full:
        pytest.skip("in make test-full")
    out = tmp_path / "run"
    job = subprocess.Popen(
        command(2, *training(text_file, out, steps=100_000)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while len(read_metrics(out / "metrics.jsonl")) < 5 and time.monotonic() < deadline:
        time.sleep(0.1)
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(job.pid)], capture_output=True, text=True).stdout
    for child in map(int, listed.split() if whom == "all" else []):
        os.kill(child, signal.SIGTERM)
    job.send_signal(signal.SIGTERM)
    _, said = job.communicate(timeout=60)
    stopped = re.search(r"stopped by SIGTERM after step (\d+); --resume goes on", said)
    assert stopped, said[-2000:]
    assert checkpoint.latest(out / "checkpoints", "step")[0].step == int(stopped[1])


def test_a_refused_job_stays_refused(alone, text_file, tmp_path, full):
    """A restart goes on with what its own job began, not with a run that was there before."""
    if not full:
        pytest.skip("in make test-full")
    out = tmp_path / "run"
    shutil.copytree(alone(), out)
    before = (out / "metrics.jsonl").read_bytes()
    done = run(2, *training(text_file, out), restarts=1, fails=True)
    assert done.stderr.count("holds a run already") == 2  # of two attempts
    assert (out / "metrics.jsonl").read_bytes() == before


def test_an_error_is_shown_once(text_file, tmp_path):
    """A bug in one process ends the job; the others do not add their own story."""
    broken = tmp_path / "broken.py"
    broken.write_text(BROKEN)
    done = run(2, *training(text_file, tmp_path / "run"), before=(str(broken),), fails=True)
    assert done.stderr.count("ZeroDivisionError: of process 1") == 1
    assert done.stderr.count("]: Traceback") == 1, done.stderr  # of [rank1]; torchrun adds how it noticed


BROKEN = """
from boosted_attention.cli.main import main
from boosted_attention.train.loop import TrainingLoop

original = TrainingLoop._step
def step(self):
    if self.done == 2 and self.parallel.rank == 1:
        raise ZeroDivisionError("of process 1")
    return original(self)
TrainingLoop._step = step
main()
"""

PER_RANK = """
import os, sys
from boosted_attention.cli.main import main

if os.environ["RANK"] == "1":
    {change}
main()
"""


@pytest.mark.parametrize(
    ("n", "options", "change", "line"),
    [
        (3, [], None, r"--batch-size 8 is not divisible by 3 processes; 6 or 9 would be"),
        (2, ["--batch-size", 1], None, r"--batch-size 1 gives 2 processes less than a row each; start fewer"),
        (2, [], "sys.argv += ['--lr', '0.5']", r"process 1 was started with other settings .*: training.lr "),
        (2, [], "sys.argv += ['--checkpoint-every', '5']", r"process 1 was started .*: checkpoint_every"),
        (2, [], "sys.argv += ['--parallel', 'fsdp']", r"process 1 was started with other settings .*: parallel"),
        (2, ["--stepz", 3], None, r"--stepz"),
        (2, ["--out", "here"], "os.chdir('elsewhere')", r"process 1 on .* does not see --out .*; give a folder"),
        (2, ["--corpus", "text:nowhere"], None, r"nowhere does not exist"),
        (2, ["--parallel", "tensor"], None, r"--parallel tensor is not one of 'ddp', 'fsdp'"),
    ],
    ids=["divisible", "rows", "settings", "saving", "kinds", "parsing", "folder", "corpus", "kind"],
)
def test_refusals(n, options, change, line, text_file, tmp_path, monkeypatch, full):
    """One clear line from one process, exit code 2 of every process, nothing written."""
    if not full and not line.startswith("process 1 was started with other settings .*: par"):
        pytest.skip("in make test-full")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    before = ()
    if change is not None:
        (tmp_path / "start.py").write_text(PER_RANK.format(change=change))
        before = ("start.py",)
    done = run(n, *training(text_file, "run"), *options, before=before, fails=True)
    lines = [text for text in done.stderr.splitlines() if text.startswith("boosted-attention:")]
    assert len(lines) == 1, done.stderr[-2000:]
    assert re.search(line, lines[0])
    assert "exitcode  : 2" in done.stderr
    assert "]: Traceback" not in done.stderr
    assert not list(tmp_path.glob("*/config.json"))
