"""Planted bugs are of the source as it is, and each names the test that notices it; `make mutants` runs them."""

import ast
import json
from pathlib import Path

import pytest
from mutants.__main__ import LIST, PACKAGE, TOLERATED, mirrored, plant
from mutants.operators import DRAWS, KINDS, draw, sites

ROOT = Path(__file__).parents[1]
PLANTED = json.loads(LIST.read_text())


def test_fifteen_went_unnoticed_and_ninety_were_drawn():
    ids = [bug["id"] for bug in PLANTED]
    assert len(set(ids)) == len(ids)
    assert sum(id.startswith("m") for id in ids) == 15
    for draw_name, count in {"d": 30, "f": 60}.items():
        drawn = [bug for bug in PLANTED if bug["id"].startswith(draw_name) and "equivalent" not in bug]
        assert len(drawn) == count
        assert sum("noticed by" in bug for bug in drawn) >= count - TOLERATED[draw_name]
    assert all("noticed by" in bug for bug in PLANTED if bug["id"].startswith("m"))


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug["id"])
def test_a_bug_can_still_be_planted_and_its_test_is_there(bug, tmp_path):
    path = tmp_path / bug["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    source = (PACKAGE / bug["file"]).read_text()
    path.write_text(source)
    plant(bug, tmp_path)
    assert path.read_text() != source
    ast.parse(path.read_text())
    if "noticed by" in bug:
        file, _, name = bug["noticed by"].partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()
        assert any(file == place or file.startswith(f"{place}/") for place in mirrored(bug["file"]))


def test_a_bug_whose_line_has_changed_is_named(tmp_path):
    (tmp_path / "statistics.py").write_text("nothing\n")
    with pytest.raises(SystemExit, match="has no line"):
        plant({"id": "x", "file": "statistics.py", "before": "a", "after": "b"}, tmp_path)


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_takes_every_kind_in_turn_and_can_be_repeated(name):
    first = draw(PACKAGE, 12, name)
    assert [site.kind for site in first] == [*KINDS, *KINDS]
    assert draw(PACKAGE, 6, name) == first[:6]
    assert all(len(found) > 50 for found in sites(PACKAGE, DRAWS[name][0]).values())
    for site in first:
        assert site.before != site.after
