"""A small part of every hunt, with the same numbers as the full one, and a check that hunts find what they look for."""

import os

import pytest

from tests.faults.hunt import Count, Hunt, go_on
from tests.faults.hunts import HUNTS
from tests.faults.workshop import Workshop

SHARE = {"crash points": 30, "malformed command lines": 30, "corruptions": 16, "clean loads": 6, "resealed lies": 12}
SHARE |= {"hostile files": 10, "broken disks": 2}
FEW = 1  # attempts of those that start processes


@pytest.fixture(scope="module")
def workshop(made_once):
    return Workshop(made_once("workshop", lambda folder: None))


@pytest.mark.parametrize("hunt", HUNTS, ids=lambda hunt: hunt.name)
def test_nothing_breaks(hunt, workshop, full, tmp_path, monkeypatch):
    monkeypatch.setenv("BOOSTED_ATTENTION_CACHE", os.environ["BOOSTED_ATTENTION_CACHE"])
    wanted = SHARE.get(hunt.name, FEW)
    found = go_on(hunt, 8 * wanted if full else wanted, workshop, tmp_path / "scratch", tmp_path / "count.json")
    assert found.broken == {}
    assert found.done >= wanted


def test_a_hunt_counts_what_breaks_and_goes_on_where_it_was(workshop, tmp_path):
    tried = []

    def attempt(draw, workshop, place):
        assert list(place.iterdir()) == []
        tried.append(draw.random())
        if len(tried) == 2:
            raise RuntimeError("torn")
        return "other numbers" if len(tried) == 3 else None

    hunt = Hunt(name="some", promise="", attempts=4, attempt=attempt)
    first = go_on(hunt, 2, workshop, tmp_path / "scratch", tmp_path / "count.json")
    second = go_on(hunt, 4, workshop, tmp_path / "scratch", tmp_path / "count.json")
    assert (first.done, second.done) == (2, 4)
    assert list(second.broken) == ["1", "2"]
    assert "RuntimeError: torn" in second.broken["1"]
    assert second.broken["2"] == "other numbers"
    assert len(set(tried)) == 4
    assert Count.read(tmp_path / "count.json").done == 4
