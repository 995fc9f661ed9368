"""The results that ship: read under their names and schema, written between the marks of a page."""

import json
import shutil
from pathlib import Path

import pytest

from boosted_attention.lab.experiments.language import controls
from boosted_attention.lab.judging.ledger import as_rows
from boosted_attention.lab.judging.table import Comparison, Table, render
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.reproduce import all_trials, reread, stored_preset
from boosted_attention.lab.shipped import BEGIN, END, into, shipped, words
from boosted_attention.lab.trials.trial import WORKS
from boosted_attention.statistics import Estimate

ROOT = Path(__file__).parents[2]
PLACES = sorted(path.parent for path in (ROOT / "results").glob("*/claims.json"))
ONE = {"mean": -1.0, "low": -2.0, "high": -0.5, "std": 0.1, "n": 3}


@pytest.mark.parametrize("place", PLACES, ids=lambda path: path.name)
def test_shipped_results_are_read_under_their_names_and_schema(place):
    """Every record is of a known work, in the folder of its key, and belongs to a table; nothing lies unread."""
    preset = stored_preset(place)
    found = reread(preset, place)
    assert not found.outcome.remarks
    wanted = {trial.key: trial for trial in all_trials(list(found.tables), preset)}
    for path in place.glob("trials/*/result.json"):
        record = json.loads(path.read_text())["trial"]
        assert WORKS[record["work"]].schema == record["schema"]
        assert wanted[path.parent.name].identity == record
        assert path.parent.name in found.outcome.records
    assert not (place / "runs").exists()


@pytest.mark.parametrize("place", PLACES, ids=lambda path: path.name)
def test_shipped_tables_follow_from_shipped_results(place):
    found = reread(stored_preset(place), place)
    stored = json.loads((place / "claims.json").read_text())
    assert list(found.tables) == stored["experiments"]
    shown = [row for row in as_rows(found.ledger) if row["experiment"] in found.tables]
    assert shown == [row for row in stored["claims"] if row["experiment"] in found.tables]
    text = (place / "tables.md").read_text()
    assert all(render(table) in text for table in found.tables.values())


def test_the_pages_results_are_those_that_ship():
    """``boosted-attention results --page docs/results.md`` would change nothing."""
    page = (ROOT / "docs" / "results.md").read_text()
    assert into(page, shipped(ROOT / "results"), "docs/results.md") == page


def test_shipped_results_are_written_between_the_marks(language_smoke, tmp_path):
    _, out = language_smoke
    shutil.copytree(out, tmp_path / "results" / "smoke", ignore=shutil.ignore_patterns("training"))
    block = shipped(tmp_path / "results")
    assert "| boosted | " in block
    assert "At this scale boosted attention " in block
    page = f"before\n{BEGIN}old\n{END}after\n"
    assert into(page, block, "page") == f"before\n{BEGIN}{block}{END}after\n"
    with pytest.raises(ValueError, match="has no place for results"):
        into("nothing", block, "page")


def test_words_follow_the_interval():
    table = Table("", [])
    for name, low, high in (("standard", -3, -1), ("parallel", 1, 3), ("param-fair", -1, 1)):
        difference = Estimate(**{**ONE, "mean": (low + high) / 2, "low": low, "high": high})
        quantity = controls.OVER[name].quantity
        table.quantities[quantity] = difference
        table.comparisons.append(Comparison(quantity, difference, None, None))
    said = words(PRESETS["cpu"], table, controls.OVER)
    assert "beats standard attention" in said
    assert "loses to a second attention" in said
    assert "cannot be told from the standard model with as many parameters" in said
