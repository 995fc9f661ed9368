"""Verdicts on record are those of the ledger."""

import shutil
from pathlib import Path

from boosted_attention.attention.catalog import list_attention
from boosted_attention.lab.judging.facts import FACTS
from boosted_attention.lab.judging.recorded import ABOUT, CORRECTIONS, recorded_verdicts
from boosted_attention.storage.sealing import read_sealed

RESULTS = Path(__file__).parents[3] / "results"


def test_what_ships_is_on_record():
    facts = {row["id"]: row for row in read_sealed(RESULTS / "quick" / "claims.json")["facts"]}
    quick = [row for row in recorded_verdicts(RESULTS, "boosted") if row.place.endswith("(preset quick)")]
    assert [row.statement for row in quick] == [facts[fact.id]["sentence"] for fact in ABOUT["boosted"]]
    assert [row.verdict for row in quick] == [facts[fact.id]["verdict"] for fact in ABOUT["boosted"]]
    assert recorded_verdicts(RESULTS, "standard") == []


def test_what_was_not_run_or_is_damaged_is_not_on_record(tmp_path):
    assert recorded_verdicts(tmp_path / "nowhere", "boosted") == []
    (tmp_path / "quick").mkdir()
    path = tmp_path / "quick" / "claims.json"
    shutil.copy(RESULTS / "quick" / "claims.json", path)
    assert recorded_verdicts(tmp_path, CORRECTIONS) == []
    assert recorded_verdicts(tmp_path, "twicing")
    path.write_text(path.read_text().replace("cannot tell", "reproduced", 1))
    assert recorded_verdicts(tmp_path, "twicing") == []


def test_kinds_and_facts_are_those_there_are():
    assert ABOUT.keys() <= {*list_attention(), CORRECTIONS}
    assert {fact for facts in ABOUT.values() for fact in facts} <= set(FACTS)
