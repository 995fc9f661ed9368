"""The lab on a real Slurm: the same tables as here, a cancelled run done again, a requeued one continued."""

import os
import subprocess
import sys

import pytest

from tests.lab import cluster
from tests.train.test_parallel import environment

EXPERIMENT = ["reproduce", "lm-normalization", "--preset", "smoke"]  # 12 runs


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    reason = cluster.why_not()
    if reason is not None:
        pytest.skip(reason)
    with cluster.running(tmp_path_factory.mktemp("slurm")) as conf:
        yield {**environment(), "SLURM_CONF": str(conf)}


def run(env, *options, check=True):
    done = subprocess.run(
        [sys.executable, "-m", "boosted_attention", *map(str, options)],
        env=env, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done


def jobs(env, state):
    lines = cluster.said(env, "squeue", "-h", "-o", "%i %T %M").splitlines()
    return [number for number, what, _ in map(str.split, lines) if what == state]


def test_through_slurm_as_here(slurm, text_file, tmp_path):
    text = ["--corpus", f"text:{text_file}"]
    here, there = tmp_path / "here", tmp_path / "there"
    submit = [*EXPERIMENT, *text, "--out", there, "--executor", "slurm", "--partition", "main"]
    process = subprocess.Popen(
        [sys.executable, "-m", "boosted_attention", *map(str, submit)],
        env=slurm, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    cluster.wait_for(lambda: len(jobs(slurm, "RUNNING")) == 2, "two jobs", 120)
    cancelled, requeued = jobs(slurm, "RUNNING")
    subprocess.run(["scancel", cancelled], env=slurm, check=True)
    subprocess.run(["scontrol", "requeue", requeued], env=slurm, check=True)
    cluster.wait_for(lambda: requeued in jobs(slurm, "PENDING"), "the requeued job")
    subprocess.run(
        ["scontrol", "update", f"JobId={requeued}", "StartTime=now"], env=slurm, check=True
    )  # or in 2 minutes
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert said.count("FAILED: ") == 1, said
    assert f"job {cancelled} ended as CANCELLED" in " ".join(said.split())
    assert "Restarts=1" in cluster.said(slurm, "scontrol", "show", "job", requeued)
    done = len(list(there.glob("runs/*/result.json")))
    assert done == 11  # the requeued one among them
    again = run(slurm, *submit)
    assert "FAILED" not in again.stdout
    assert len(list(there.glob("runs/*/result.json"))) == 12
    run(slurm, *EXPERIMENT, *text, "--out", here)
    for name in ("tables.md", "claims.json", "results.json"):
        assert (there / name).read_bytes() == (here / name).read_bytes(), name
    assert not list(there.glob("runs/*/progress.txt"))


def test_refusals(slurm, text_file, tmp_path, full):
    submit = [*EXPERIMENT, "--corpus", f"text:{text_file}", "--out", tmp_path / "out", "--executor", "slurm"]
    without = {**slurm, "PATH": os.path.dirname(sys.executable)}
    nowhere = tmp_path / "nowhere.conf"
    unreachable = ({**slurm, "SLURM_CONF": str(nowhere)}, [], "the cluster does not answer")  # after some patience
    for env, options, line in (
        *([unreachable] if full else []),
        (slurm, ["--partition", "mian"], "--partition 'mian' is not one of the cluster's: main"),
        (slurm, ["--time", "0"], "--time 0 must be at least 1"),
        (without, [], "there is no Slurm on this machine (sbatch is not found); --executor local runs here"),
    ):
        done = run(env, *submit, *options, check=False)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1, done.stderr
        assert line in done.stderr
    assert not (tmp_path / "out").exists()


def test_no_partition_without_slurm(tmp_path):
    done = run(environment(), *EXPERIMENT, "--out", tmp_path / "out", "--partition", "main", check=False)
    assert done.returncode == 2
    assert "--partition and --gpus-per-run are for --executor slurm" in done.stderr
