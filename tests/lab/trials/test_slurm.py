"""The lab on a real Slurm: the same tables as here, a cancelled run done again, a requeued one continued."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from boosted_attention.lab.experiments.language._trials import training_trial
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.trials.runner import execute
from boosted_attention.lab.trials.slurm import SlurmExecutor
from tests.lab.trials import cluster
from tests.train.test_parallel import environment

EXPERIMENT = ["reproduce", "lm-normalization", "--preset", "smoke", "--seeds", "1"]  # 6 trials


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
        env=env,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert not check or done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done


def jobs(env, state):
    lines = cluster.said(env, "squeue", "-h", "-o", "%i %T %M").splitlines()
    return [number for number, what, _ in map(str.split, lines) if what == state]


def requeue(env, number):
    """As preemption does, without its two minutes of waiting. Slurm starts no job in the second it was killed in."""
    subprocess.run(["scontrol", "requeue", number], env=env, check=True)
    cluster.wait_for(lambda: number in jobs(env, "PENDING"), "the requeued job")
    subprocess.run(["scontrol", "update", f"JobId={number}", "StartTime=now+3"], env=env, check=True)


def test_through_slurm_as_here(slurm, text_file, tmp_path):
    text = ["--corpus", f"text:{text_file}"]
    here, there = tmp_path / "here", tmp_path / "there"
    submit = [*EXPERIMENT, *text, "--out", there, "--executor", "slurm", "--partition", "main"]
    start = [sys.executable, "-m", "boosted_attention", *map(str, submit)]
    lost = subprocess.Popen(start, env=slurm, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cluster.wait_for(lambda: "6" in cluster.said(slurm, "squeue", "-h", "-o", "%i").split(), "the last job", 120)
    requeued, cancelled = "4", "6"
    for number in (requeued, cancelled):  # or they may end before the next command sees them
        subprocess.run(["scontrol", "hold", number], env=slurm, check=True)
    lost.kill()  # the jobs stay
    lost.wait()
    with (tmp_path / "stderr").open("w") as told:
        process = subprocess.Popen(start, env=slurm, stdout=subprocess.PIPE, stderr=told, text=True)
    taken_over = f"job {cancelled}, which was in the queue already"
    cluster.wait_for(lambda: taken_over in (tmp_path / "stderr").read_text(), "the next command", 120)
    subprocess.run(["scontrol", "release", requeued], env=slurm, check=True)
    cluster.wait_for(lambda: requeued in jobs(slurm, "RUNNING"), f"job {requeued}", 300)
    requeue(slurm, requeued)
    subprocess.run(["scancel", cancelled], env=slurm, check=True)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert said.count("FAILED: ") == 1, said
    assert f"job {cancelled} ended as CANCELLED" in " ".join(said.split())
    assert "Restarts=1" in cluster.said(slurm, "scontrol", "show", "job", requeued)
    assert {path.name.split("_")[0] for path in (there / "slurm").glob("*_submitted.pkl")} == set(map(str, range(1, 7)))
    done = len(list(there.glob("trials/*/result.json")))
    assert done == 5  # the requeued one among them
    again = run(slurm, *submit)
    assert "FAILED" not in again.stdout
    assert len(list(there.glob("trials/*/result.json"))) == 6
    run(slurm, *EXPERIMENT, *text, "--out", here)
    for name in ("tables.md", "claims.json", "results.json"):
        assert (there / name).read_bytes() == (here / name).read_bytes(), name
    assert not [*there.glob("trials/*/progress.txt"), *there.glob("trials/*/error.txt")]


def test_a_requeued_trial_goes_on_from_its_checkpoint(slurm, text_file, tmp_path, monkeypatch, full):
    if not full:
        pytest.skip("in make test-full")
    monkeypatch.setenv("SLURM_CONF", slurm["SLURM_CONF"])
    preset = PRESETS["smoke"].with_corpora([f"text:{text_file}"])
    steps = 500
    training = training_trial(preset, preset.text.corpora[0], {}, 0, "long", steps=steps)
    executor = SlurmExecutor(tmp_path / "there", partition="main", minutes=5, gpus_per_trial=0)
    place = tmp_path / "there" / "trials" / training.key
    checkpoints, progress = place / "training" / "checkpoints", place / "progress.txt"
    with ThreadPoolExecutor() as pool:
        done = pool.submit(execute, [training], tmp_path / "there", 1, executor=executor)
        cluster.wait_for(lambda: list(checkpoints.glob("step-*")) or done.done(), "a checkpoint", 120)
        (number,) = jobs(slurm, "RUNNING")
        requeue(slurm, number)
        saved = max(int(path.name.removeprefix("step-")) for path in checkpoints.glob("step-*"))
        progress.unlink(missing_ok=True)
        seen = []
        while not done.done():
            with suppress(OSError, ValueError):
                seen.append(float(progress.read_text()))
            time.sleep(0.02)
        found = done.result()
    assert not found.failures
    assert "Restarts=1" in cluster.said(slurm, "scontrol", "show", "job", number)
    assert 100 <= saved < steps
    assert seen
    assert min(seen) * steps >= saved
    here = execute([training], tmp_path / "here", 1).result(training)
    assert {**found.result(training), "measured": None} == {**here, "measured": None}


def test_refusals(slurm, text_file, tmp_path, full):
    submit = [*EXPERIMENT, "--corpus", f"text:{text_file}", "--out", tmp_path / "out", "--executor", "slurm"]
    without = {**slurm, "PATH": os.path.dirname(sys.executable)}
    nowhere = tmp_path / "nowhere.conf"
    unreachable = ({**slurm, "SLURM_CONF": str(nowhere)}, [], "the cluster does not answer")  # after some patience
    for env, options, line in (
        *([unreachable] if full else []),
        (slurm, ["--partition", "mian"], "--partition mian is not one of the cluster's: main"),
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
    assert "--partition and --gpus-per-trial are for --executor slurm" in done.stderr
