"""The page is a function of the JSON, and the JSON of what was measured."""

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.__main__ import main, measure
from benchmarks.page import PAGE, PLOTS, render, write
from benchmarks.results import load
from boosted_attention import InputError
from tests.benchmarks.made import made_results

ROOT = Path(__file__).parent.parent.parent
RESULTS, DOCS = ROOT / "benchmarks" / "results.json", ROOT / "docs"


def files(docs: Path) -> dict[str, str]:
    """The page and its plots as they are on disk."""
    found = [path for path in [docs / PAGE, *sorted((docs / PLOTS).glob("*"))] if path.is_file()]
    return {str(path.relative_to(docs)): path.read_text(encoding="utf-8") for path in found}


def test_the_committed_page_is_what_the_json_gives():
    """Before there is a JSON there is no page, and no plot."""
    assert files(DOCS) == (render(load(RESULTS)) if RESULTS.exists() else {})


def test_committed_numbers_are_of_full_size():
    assert not RESULTS.exists() or not load(RESULTS).quick


def test_results_survive_the_file_and_give_the_same_page(tmp_path):
    results = made_results(True)
    results.save(tmp_path / "results.json")
    assert load(tmp_path / "results.json") == results
    write(load(tmp_path / "results.json"), tmp_path)
    assert files(tmp_path) == render(results)


def test_plots_that_the_page_no_longer_has_are_removed(tmp_path):
    (tmp_path / PLOTS).mkdir()
    (tmp_path / PLOTS / "old.svg").touch()
    write(made_results(True), tmp_path)
    assert not (tmp_path / PLOTS / "old.svg").exists()


@pytest.mark.parametrize("good", [True, False])
def test_the_page_says_what_is_reached(good):
    page = render(made_results(good))[PAGE]
    table = page.partition("reached.")[0]
    assert table.count("| yes |") == (18 if good else 0)
    assert table.count("| **no** |") == (0 if good else 18)
    assert ("is a fair rival" in page) is good
    assert "Not measured: price, halting, growth" in page


def test_sizes_are_in_the_order_of_their_numbers(tmp_path):
    """Also behind a file, whose keys are in the order of their digits."""
    results = made_results(True)
    results.save(tmp_path / "results.json")
    for page in (render(results)[PAGE], render(load(tmp_path / "results.json"))[PAGE]):
        assert 0 < page.index("\n| 64 |") < page.index("\n| 1024 |")
        assert 0 < page.index("\n| 4 MB |") < page.index("\n| 10 MB |")


def test_every_plot_of_the_page_is_a_file():
    made = render(made_results(True))
    named = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", made[PAGE])
    assert set(named) == made.keys() - {PAGE}
    assert all(made[path].startswith("<svg ") and made[path].endswith("</svg>\n") for path in named)


def test_a_changed_number_changes_the_page():
    results = made_results(True)
    before = render(results)
    results.sections["memory"].result.peaks[-1].bytes["ours"] = 4
    after = render(results)
    assert before[PAGE] != after[PAGE]
    assert before[f"{PLOTS}/memory.svg"] != after[f"{PLOTS}/memory.svg"]
    assert before[f"{PLOTS}/steps.svg"] == after[f"{PLOTS}/steps.svg"]


def test_a_section_measured_anew_leaves_the_others(tmp_path):
    path, console = tmp_path / "results.json", Console(quiet=True)
    made = made_results(True)
    made.quick = True
    made.save(path)
    measure(["hull"], path, quick=True, console=console)
    found = load(path)
    assert (
        list(found.sections) == [*made.sections, "hull"] == [*made.sections, *set(found.sections) - set(made.sections)]
    )
    assert found.sections["steps"] == made.sections["steps"]
    assert found.sections["hull"].result.inside["NNLS"] < 1e-6
    assert "Distance from a hull" in render(found)[PAGE]


def test_an_unknown_section_is_one_line(capsys):
    assert main(["hul", "--quick"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("benchmarks: section='hul' is not one of")
    assert said.rstrip().endswith("did you mean 'hull'?")
    assert said.count("\n") == 1


def test_a_file_with_other_fields_is_refused(tmp_path):
    data = {"format": 1, "quick": False, "sections": {"hull": {"machine": {}, "minutes": 1, "result": {"x": 1}}}}
    (tmp_path / "results.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"results.json is not what the sections write now \(hull\.result must be"):
        load(tmp_path / "results.json")
