"""The runner: nothing twice, nothing lost, failures on their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boosted_attention.lab.runner import execute
from boosted_attention.lab.runs import Run

ROOT = Path(__file__).parent.parent.parent


def count_run(value, log):
    return Run(work="tests.lab.kinds:count", config={"value": value, "log": str(log)}, label=f"count {value}")


def test_finished_runs_are_never_repeated(tmp_path):
    runs = [count_run(i, tmp_path / "log") for i in (1, 2, 3, 2)]
    for _ in range(2):
        outcome = execute(runs, tmp_path, workers=2)
        assert [outcome.result(run)["double"] for run in runs] == [2, 4, 6, 4]
    assert sorted((tmp_path / "log").read_text().split()) == ["1", "2", "3"]


def test_a_record_says_where_it_comes_from(tmp_path):
    run = count_run(1, tmp_path / "log")
    execute([run], tmp_path, workers=1)
    record = json.loads((tmp_path / "runs" / run.key / "result.json").read_text())
    assert record["run"] == run.identity
    assert {"torch", "python", "boosted-attention", "numpy"} <= set(record["versions"])
    assert {"commit", "seconds", "label"} <= set(record)
    assert json.loads((tmp_path / "runs" / run.key / "config.json").read_text()) == run.identity


def test_the_key_is_the_whole_configuration():
    a, b = (Run(work="m:f", config={"x": 1, "y": y}) for y in (2, 3))
    assert a.key != b.key
    assert a.key == Run(work="m:f", config={"y": 2, "x": 1}, label="other", seconds=9.0).key
    assert a.key != Run(work="m:g", config={"x": 1, "y": 2}).key


def test_the_reason_shown_is_the_last_ones(tmp_path):
    run = Run(work="tests.lab.kinds:differently", config={"marker": str(tmp_path / "marker")}, label="bad")
    assert "old reason" in execute([run], tmp_path, workers=1).failures["bad"]
    assert execute([run], tmp_path, workers=1).failures["bad"] == "ended with exit code 7"


def test_a_failure_leaves_the_others_intact_and_is_tried_again(tmp_path):
    marker = tmp_path / "marker"
    bad = Run(work="tests.lab.kinds:crash", config={"marker": str(marker)}, label="bad")
    dead = Run(work="tests.lab.kinds:die", config={}, label="dead")
    good = [count_run(i, tmp_path / "log") for i in range(3)]
    outcome = execute([bad, dead, *good], tmp_path, workers=2)
    assert outcome.has(good)
    assert not outcome.has([bad])
    assert outcome.failures["bad"].startswith("RuntimeError: made to crash (see ")
    assert outcome.failures["dead"] == "ended by signal 9"
    assert "made to crash" in (tmp_path / "runs" / bad.key / "error.txt").read_text()
    marker.touch()
    outcome = execute([bad, *good], tmp_path, workers=2)
    assert outcome.result(bad) == "well"
    assert not outcome.failures
    assert not (tmp_path / "runs" / bad.key / "error.txt").exists()


def edited(**changes):
    return lambda record: json.dumps({**record, **changes})


DAMAGE = {
    "empty": lambda record: "",
    "torn": lambda record: json.dumps(record)[:50],
    "not a record": lambda record: "[]",
    "not UTF-8": lambda record: "\xff",
    "no versions": edited(versions=None),
    "no result": lambda record: json.dumps({key: value for key, value in record.items() if key != "result"}),
    "no commit": lambda record: json.dumps({key: value for key, value in record.items() if key != "commit"}),
    "another result": edited(result={"value": 1, "double": 3}),
    "another run": edited(run={}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_result_is_named_kept_and_redone(tmp_path, damage):
    run = count_run(1, tmp_path / "log")
    execute([run], tmp_path, workers=1)
    path = tmp_path / "runs" / run.key / "result.json"
    damaged = DAMAGE[damage](json.loads(path.read_text())).encode("latin-1")
    path.write_bytes(damaged)
    outcome = execute([run], tmp_path, workers=1)
    assert outcome.result(run)["double"] == 2
    assert len(outcome.remarks) == 1
    assert str(path) in outcome.remarks[0]
    assert path.with_name("result.old-1.json").read_bytes() == damaged


def test_a_result_of_another_version_is_redone(tmp_path):
    run = count_run(1, tmp_path / "log")
    execute([run], tmp_path, workers=1)
    path = tmp_path / "runs" / run.key / "result.json"
    record = json.loads(path.read_text())
    record["versions"]["boosted-attention"] = "0.0.1"
    path.write_text(json.dumps(record))
    outcome = execute([run], tmp_path, workers=1)
    assert "made by boosted-attention 0.0.1" in outcome.remarks[0]
    assert json.loads(path.with_name("result.old-1.json").read_text()) == record
    assert (tmp_path / "log").read_text() == "1\n1\n"


SCRIPT = """
import sys
from pathlib import Path
from tests.lab.test_runner import slow_runs
from boosted_attention.lab.runner import execute
if __name__ == "__main__":
    execute(slow_runs(), Path(sys.argv[1]), workers=2)
"""


def slow_runs():
    return [Run(work="tests.lab.kinds:slow", config={"value": i, "seconds": 0.3}, label=f"slow {i}") for i in range(6)]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_killed_at_any_moment_it_goes_on_from_there(tmp_path, how):
    script, out = tmp_path / "script.py", tmp_path / "out"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(script), str(out)], env=environment, stderr=subprocess.PIPE, cwd=ROOT
    )
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not list(out.glob("runs/*/result.json")):
        time.sleep(0.02)
    process.send_signal(how)
    process.communicate(timeout=100)
    finished = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")}
    assert 1 <= len(finished) < 6
    outcome = execute(slow_runs(), out, workers=2)
    assert [outcome.result(run) for run in slow_runs()] == list(range(6))
    assert all(path.stat().st_mtime_ns == when for path, when in finished.items())
