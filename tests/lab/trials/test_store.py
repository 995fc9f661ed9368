"""Records: read back as they were written, refused when they are not."""

import json
import subprocess
from pathlib import Path

import pytest

import boosted_attention
from boosted_attention.lab.trials import store
from boosted_attention.lab.trials.store import Outcome, Record, read_record, require_one_torch, stored, write_record
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.storage.sealing import write_sealed
from tests.lab.trials import works  # noqa: F401  registers them

TRIAL = Trial(work="test.count", config={"value": 1}, label="one")


def test_the_commit_is_the_checkouts_and_nothing_is_printed(capfd):
    store.commit.cache_clear()
    found = store.commit()
    assert capfd.readouterr() == ("", "")
    folder = Path(boosted_attention.__file__).parent
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    assert (found or "").rstrip("+") == head.stdout.strip()


def written(out: Path) -> Path:
    (out / "trials" / TRIAL.key).mkdir(parents=True)
    write_record(out / "trials" / TRIAL.key, TRIAL, {"double": 2}, 1.23456)
    return out / "trials" / TRIAL.key / "result.json"


def test_a_record_is_read_back(tmp_path):
    written(tmp_path)
    outcome = stored([TRIAL], tmp_path)
    assert outcome.result(TRIAL) == {"double": 2}
    assert outcome.records[TRIAL.key].seconds == 1.235
    assert outcome.has([TRIAL])
    assert not outcome.has([TRIAL, Trial(work="test.count", config={"value": 2})])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("result", {"double": 3}, "does not match its seal"),
        ("seconds", "1", "does not match its seal"),
        ("trial", {}, "does not match its seal"),
    ],
)
def test_a_record_that_was_changed_does_not_count(tmp_path, key, value, message):
    path = written(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    record, remark = read_record(tmp_path / "trials", TRIAL)
    assert record is None
    assert remark is not None
    assert message in remark


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("seconds", "1", "seconds must be"), ("trial", {}, "is not the result of this trial"), ("more", 1, "without")],
)
def test_a_record_that_was_changed_and_sealed_again_must_still_be_one(tmp_path, key, value, message):
    path = written(tmp_path)
    write_sealed(path, {**json.loads(path.read_text()), key: value})
    record, remark = read_record(tmp_path / "trials", TRIAL)
    assert record is None
    assert message in (remark or "")


def made(torch: str) -> Record:
    return Record(trial={}, label="", result=None, seconds=0.0, versions={"torch": torch}, commit=None)


def test_results_of_two_versions_of_torch_are_refused(tmp_path):
    records = {"a": made("1"), "b": made("2"), "c": made("2")}
    require_one_torch(Outcome({name: records[name] for name in "bc"}), tmp_path)
    with pytest.raises(ValueError, match="torch 1: a; torch 2: b, c"):
        require_one_torch(Outcome(records), tmp_path)
