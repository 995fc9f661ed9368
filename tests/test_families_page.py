"""docs/families.md: what the results give, with at least as many families as promised and none broken."""

import json
from collections import Counter
from pathlib import Path

from families.page import page
from families.tiny import small

ROOT = Path(__file__).parent.parent
HELD = json.loads((ROOT / "families" / "results.json").read_text())


def test_the_page_is_what_the_results_give():
    assert (ROOT / "docs" / "families.md").read_text() == page(HELD)


def test_none_is_broken_and_enough_work():
    counts = Counter(found["status"] for found in HELD["families"].values())
    assert counts["broken"] == 0
    assert counts["works"] >= 97
    for name, found in HELD["families"].items():
        if found["status"] == "works":
            assert found["kinds"]["full"]["status"] == "works" or found["kinds"]["shared"]["status"] == "works", name


def test_a_broken_family_would_be_shown():
    wrong = {"model": "X", "layers": "", "status": "broken", "kinds": {"full": {"status": "broken", "why": "a | b"}}}
    made = page({"versions": {}, "families": {"x": wrong}})
    assert "1 are accepted and broken" in made
    assert "| x | a \\| b |" in made


def test_sizes_are_made_small_in_parts_too():
    given = {"hidden_size": 4096, "use_cache": True, "text_config": {"num_hidden_layers": 80, "kv_lora_rank": 512}}
    assert small(given) == {"hidden_size": 32, "text_config": {"num_hidden_layers": 3, "kv_lora_rank": 16}}
