"""Trials are named by what they compute: where the code lies and which version it has play no part."""

import json

import pytest

from boosted_attention.lab.trials import trial as trials
from boosted_attention.lab.trials.store import read_record, versions, write_record
from boosted_attention.lab.trials.trial import WORKS, Trial, Work
from boosted_attention.lab.work import language  # noqa: F401  registers them
from tests.lab.trials import works


def test_the_key_is_the_whole_configuration():
    a, b = (Trial(work="test.count", config={"x": 1, "y": y}) for y in (2, 3))
    assert a.key != b.key
    assert a.key == Trial(work="test.count", config={"y": 2, "x": 1}, label="other", group="g", seconds=9.0).key
    assert a.key != Trial(work="test.crash", config={"x": 1, "y": 2}).key
    assert a.key != Trial(work="test.count", config={"x": 1, "y": 2}, after=("other",)).key
    assert a.key.startswith("test.count-")


def test_names_and_schemas_of_the_works():
    """Changing a line here orphans results: a name where the work is another one, a schema where its meaning is."""
    known = {name: work.schema for name, work in WORKS.items() if not name.startswith("test.")}
    assert known == {
        "finetune.decode": 1,
        "finetune.measure": 2,
        "finetune.sweep": 1,
        "finetune.time": 2,
        "finetune.train": 2,
        "language.analyse": 3,
        "language.halting": 1,
        "language.importance": 1,
        "language.sweep": 2,
        "language.time": 2,
        "language.train": 3,
        "language.train-selected": 3,
        "language.train-time-matched": 3,
        "retrieval.baselines": 1,
        "retrieval.ponder": 1,
        "retrieval.routing": 1,
        "retrieval.temperature": 1,
        "recall.train": 1,
        "retrieval.train": 1,
        "retrieval.train-stagewise": 1,
        "retrieval.trees": 1,
        "theory.propositions": 2,
        "theory.sizes": 1,
    }


def test_moving_a_file_orphans_nothing(tmp_path, monkeypatch):
    """A record written by a function of one module is read by the same work from another module."""
    trial = Trial(work="test.count", config={"value": 1, "log": ""})
    (tmp_path / trial.key).mkdir()
    write_record(tmp_path / trial.key, trial, {"value": 1}, 0.5)

    def moved(context, *, value, log):
        return {"value": value}

    moved.__module__ = "somewhere.else"
    monkeypatch.setitem(WORKS, "test.count", Work(name="test.count", schema=1, perform=moved))
    record, remark = read_record(tmp_path, Trial(work="test.count", config={"value": 1, "log": ""}))
    assert remark is None
    assert record is not None
    assert record.result == {"value": 1}


def test_raising_the_version_orphans_nothing(tmp_path, monkeypatch):
    trial = Trial(work="test.count", config={"value": 1})
    (tmp_path / trial.key).mkdir()
    write_record(tmp_path / trial.key, trial, {"value": 1}, 0.5)
    monkeypatch.setattr("boosted_attention.lab.trials.store.__version__", "99.0")
    versions.cache_clear()
    try:
        record, remark = read_record(tmp_path, trial)
    finally:
        versions.cache_clear()
    assert remark is None
    assert record is not None
    assert record.versions["boosted-attention"] != "99.0"


def test_a_raised_schema_is_another_trial(tmp_path, monkeypatch):
    trial = Trial(work="test.count", config={"value": 1})
    before = trial.key
    monkeypatch.setitem(WORKS, "test.count", Work(name="test.count", schema=2, perform=works.count))
    assert trial.key != before


def test_wrong_names_are_refused():
    with pytest.raises(ValueError, match=r"work='language.trian' is not one of .*did you mean 'language.train'"):
        Trial(work="language.trian", config={})
    with pytest.raises(AssertionError, match="two works are called"):
        trials.work("test.count")(works.count)


def test_canonical_text():
    assert trials.canonical({"b": 1, "a": [1.5, None]}) == '{"a":[1.5,null],"b":1}'
    assert json.loads(trials.canonical({"x": "ü"})) == {"x": "ü"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        trials.canonical({"x": float("nan")})
