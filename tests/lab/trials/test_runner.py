"""The runner: nothing twice, nothing lost, failures on their own, settings handed to every trial."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from boosted_attention.lab.trials.runner import execute
from boosted_attention.lab.trials.trial import Settings, Trial
from tests.lab.trials import works  # noqa: F401  registers them
from tests.processes import ROOT, environment


def count_trial(value, log):
    return Trial(work="test.count", config={"value": value, "log": str(log)}, label=f"count {value}")


def test_finished_trials_are_never_repeated(tmp_path):
    trials = [count_trial(i, tmp_path / "log") for i in (1, 2, 3, 2)]
    for _ in range(2):
        outcome = execute(trials, tmp_path, workers=2)
        assert [outcome.result(trial)["double"] for trial in trials] == [2, 4, 6, 4]
    assert sorted((tmp_path / "log").read_text().split()) == ["1", "2", "3"]


def test_trials_that_follow_from_results_are_done_too_and_nothing_twice(tmp_path):
    """Each result asks for the next number up to 4; what is there already on a second call is read."""
    log = tmp_path / "log"

    def follow(outcome):
        done = [record.result["value"] for record in outcome.records.values()]
        return [count_trial(value, log) for value in range(1, min(max(done, default=0) + 2, 5))]

    for _ in range(2):
        outcome = execute([count_trial(1, log)], tmp_path, workers=2, follow=follow)
        assert outcome.has([count_trial(value, log) for value in (1, 2, 3, 4)])
    assert log.read_text().split() == ["1", "2", "3", "4"]


def test_a_trial_that_has_become_more_important_begins_before_others(tmp_path):
    """A result opens an experiment of a lower rank, which wants a trial that another one wanted already."""
    log = tmp_path / "log"
    first, second, third = (replace(count_trial(i, log), rank=i) for i in (1, 2, 3))

    def follow(outcome):
        return [first, second, replace(third, rank=1) if outcome.has([first]) else third]

    execute([first, second, third], tmp_path, workers=1, follow=follow)
    assert log.read_text().split() == ["1", "3", "2"]


def test_a_trial_that_failed_is_not_asked_for_again_in_the_same_call(tmp_path):
    bad = Trial(work="test.crash", config={"marker": str(tmp_path / "marker")}, label="bad")
    good = count_trial(1, tmp_path / "log")
    outcome = execute([bad, good], tmp_path, workers=1, follow=lambda so_far: [bad, good])
    assert list(outcome.failures) == ["bad"]
    assert outcome.has([good])


def test_the_important_begin_first_and_of_them_the_longest(tmp_path):
    values = {1: (1, 0, 9.0), 2: (0, 0, 1.0), 3: (0, 0, 5.0), 4: (1, 0, 2.0), 5: (0, 1, 99.0)}  # rank, turn, seconds
    log = tmp_path / "log"
    trials = [replace(count_trial(value, log), rank=r, turn=t, seconds=s) for value, (r, t, s) in values.items()]
    execute(trials, tmp_path, workers=1)
    assert log.read_text().split() == ["3", "2", "5", "1", "4"]


def test_what_measures_time_has_the_machine_to_itself(tmp_path):
    names = ("test.span", "test.span", "test.timed", "test.span", "test.timed", "test.span", "test.span")
    trials = [Trial(work=name, config={"value": i}, rank=i) for i, name in enumerate(names)]
    outcome = execute(trials, tmp_path, workers=2)
    spans = [(trial.work, *outcome.result(trial)) for trial in trials]
    together = {
        frozenset((a, b))
        for (a, start, end), (b, other, until) in combinations(spans, 2)
        if start < until and other < end
    }
    assert together == {frozenset({"test.span"})}


def test_a_record_says_where_it_comes_from(tmp_path):
    trial = count_trial(1, tmp_path / "log")
    execute([trial], tmp_path, workers=1)
    record = json.loads((tmp_path / "trials" / trial.key / "result.json").read_text())
    assert record["trial"] == trial.identity
    assert {"torch", "python", "boosted-attention", "numpy"} <= set(record["versions"])
    assert {"commit", "seconds", "label"} <= set(record)
    assert json.loads((tmp_path / "trials" / trial.key / "config.json").read_text()) == trial.identity


def test_a_record_has_the_time_of_the_processor_beside_the_time_that_passed(tmp_path):
    """One trial works for a while, the other sleeps: both take time, and only the first takes the processor."""
    working, sleeping = (Trial(work="test.passes", config={"busy": busy}, label=str(busy)) for busy in (True, False))
    records = execute([working, sleeping], tmp_path, workers=1).records
    assert 0.4 <= records[working.key].cpu_seconds <= records[working.key].seconds + 0.1
    assert records[sleeping.key].seconds >= 0.4
    assert records[sleeping.key].cpu_seconds < 0.2


def test_the_reason_shown_is_the_last_ones(tmp_path):
    trial = Trial(work="test.differently", config={"marker": str(tmp_path / "marker")}, label="bad")
    assert "old reason" in execute([trial], tmp_path, workers=1).failures["bad"]
    assert execute([trial], tmp_path, workers=1).failures["bad"] == "ended with exit code 7"


def test_a_failure_leaves_the_others_intact_and_is_tried_again(tmp_path):
    marker = tmp_path / "marker"
    bad = Trial(work="test.crash", config={"marker": str(marker)}, label="bad")
    dead = Trial(work="test.die", config={}, label="dead")
    good = [count_trial(i, tmp_path / "log") for i in range(3)]
    outcome = execute([bad, dead, *good], tmp_path, workers=2)
    assert outcome.has(good)
    assert not outcome.has([bad])
    assert outcome.failures["bad"].startswith("RuntimeError: made to crash (see ")
    assert outcome.failures["dead"] == "ended by signal 9"
    assert "made to crash" in (tmp_path / "trials" / bad.key / "error.txt").read_text()
    marker.touch()
    outcome = execute([bad, *good], tmp_path, workers=2)
    assert outcome.result(bad) == "well"
    assert not outcome.failures
    assert not (tmp_path / "trials" / bad.key / "error.txt").exists()


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
    "another trial": edited(trial={}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_result_is_named_kept_and_redone(tmp_path, damage):
    trial = count_trial(1, tmp_path / "log")
    execute([trial], tmp_path, workers=1)
    path = tmp_path / "trials" / trial.key / "result.json"
    damaged = DAMAGE[damage](json.loads(path.read_text())).encode("latin-1")
    path.write_bytes(damaged)
    outcome = execute([trial], tmp_path, workers=1)
    assert outcome.result(trial)["double"] == 2
    assert len(outcome.remarks) == 1
    assert str(path) in outcome.remarks[0]
    assert path.with_name("result.old-1.json").read_bytes() == damaged


def test_a_trial_is_given_settings_and_what_it_builds_on(tmp_path):
    first = Trial(work="test.tell", config={"value": 1})
    second = Trial(work="test.tell", config={"value": 2}, after=(first.key,), label="second")
    settings = Settings(device="abacus", data_root="texts")
    outcome = execute([second, first], tmp_path, workers=2, settings=settings)
    told = outcome.result(second)
    assert (told["device"], told["data_root"], told["folder"]) == ("abacus", "texts", second.key)
    (before,) = told["earlier"]
    assert before == {"config": {"value": 1}, "result": outcome.result(first), "folder": first.key}
    assert (tmp_path / "shared").is_dir()


def test_settings_are_no_part_of_a_trial(tmp_path):
    trial = Trial(work="test.tell", config={"value": 1})
    execute([trial], tmp_path, workers=1, settings=Settings(device="one"))
    again = execute([trial], tmp_path, workers=1, settings=Settings(device="another"))
    assert again.result(trial)["device"] == "one"


SCRIPT = """
import signal, sys
from pathlib import Path
from tests.lab.trials import test_runner
from boosted_attention.lab.trials.runner import execute
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background
    execute(getattr(test_runner, sys.argv[2])(), Path(sys.argv[1]), workers=2)
"""


def slow_trials():
    return [Trial(work="test.slow", config={"value": i, "seconds": 0.3}, label=f"slow {i}") for i in range(6)]


def silent_trials():
    return [Trial(work="test.silent", config={"value": 1}, label="silent")]


def started(folder, trials):
    """A process that does trials in ``folder / "out"``."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(folder / "out"), trials.__name__]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, cwd=ROOT)


def comes_true(condition, seconds=100):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not condition():
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_killed_at_any_moment_it_goes_on_from_there(tmp_path, how):
    out, process = tmp_path / "out", started(tmp_path, slow_trials)
    assert comes_true(lambda: list(out.glob("trials/*/result.json")))
    process.send_signal(how)
    process.communicate(timeout=100)
    finished = {path: path.stat().st_mtime_ns for path in out.glob("trials/*/result.json")}
    assert 1 <= len(finished) < 6
    outcome = execute(slow_trials(), out, workers=2)
    assert [outcome.result(trial) for trial in slow_trials()] == list(range(6))
    assert all(path.stat().st_mtime_ns == when for path, when in finished.items())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_trial_ends_with_the_command_that_started_it(tmp_path, how):
    """Also where it reports nothing: another command's attempt at it must find nobody there."""
    process, (trial,) = started(tmp_path, silent_trials), silent_trials()
    pid = tmp_path / "out" / "trials" / trial.key / "pid"
    assert comes_true(lambda: pid.exists() and pid.read_text())
    process.send_signal(how)
    process.communicate(timeout=100)
    assert comes_true(lambda: not Path(f"/proc/{pid.read_text()}").exists(), seconds=20)
