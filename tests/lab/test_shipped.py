"""The results that ship: read under their names and schema, written between the marks of a page."""

import io
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from boosted_attention.cli.main import main
from boosted_attention.lab.experiments import EXPERIMENTS, LANGUAGE
from boosted_attention.lab.experiments.language import sweep
from boosted_attention.lab.experiments.language._arms import STANDARD
from boosted_attention.lab.experiments.language.main import ON_VALIDATION, PERPLEXITY
from boosted_attention.lab.judging import ledger
from boosted_attention.lab.judging.agreement import contrary, in_both
from boosted_attention.lab.judging.facts import A_FORM_PAYS
from boosted_attention.lab.judging.ledger import as_rows
from boosted_attention.lab.judging.table import render
from boosted_attention.lab.judging.verdicts import CANNOT_TELL, too_few
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.reproduce import all_trials, reread, stored_preset, write
from boosted_attention.lab.shipped import shipped
from boosted_attention.lab.trials.store import FOLDER, load_record, write_record
from boosted_attention.lab.trials.trial import WORKS
from boosted_attention.lab.work.language import TIME_TOLERANCE
from boosted_attention.records import to_json
from boosted_attention.report.pictures import picture_problems
from boosted_attention.storage.sealing import write_sealed
from confirm.__main__ import CONFIRMED, TIMED, git, in_history, kind_of, lost, shown
from tests.lab.experiments.language.arena import SMALL, write_made
from tests.lab.experiments.language.tournament import PRESET, finished

ROOT = Path(__file__).parents[2]
PLACES = sorted(path.parent for path in (ROOT / "results").glob("*/claims.json"))
RECORDS = sorted((ROOT / "results").glob("*/trials/*/result.json"))  # also of runs that are not finished
SCREEN = 50  # lines of 80 columns
AFTER = 3  # lines that say where everything is


@cache
def read(place):
    """What a folder of results holds, read once; tests change nothing of it."""
    return reread(stored_preset(place), place)


def unread(place):
    """Folders of records that no experiment of the preset asks for: they would lie there without being looked at.

    What an experiment asks for counts before its table is there, so that unfinished results can ship.
    """
    found = reread(stored_preset(place), place)
    assert not found.outcome.remarks
    wanted = {trial.key: trial for trial in all_trials(list(EXPERIMENTS), found.preset)}
    there = {path.parent.name: json.loads(path.read_text())["trial"] for path in place.glob("trials/*/result.json")}
    assert all(WORKS[record["work"]].schema == record["schema"] for record in there.values())
    assert all(wanted[key].identity == there[key] for key in there.keys() & wanted.keys())
    return sorted(there.keys() - (wanted.keys() & found.outcome.records.keys()))


@pytest.mark.parametrize("place", PLACES, ids=lambda path: path.name)
def test_shipped_results_are_read_under_their_names_and_schema(place):
    """Every record is of a known work, in the folder of its key; nothing lies unread."""
    assert unread(place) == []
    assert not (place / "runs").exists()


@pytest.mark.parametrize("missing", ["rates x 2, d=64", "seed 302", "matched, d=128", "one more layer", "rates x"])
def test_results_of_a_preset_that_is_not_finished_are_read(tmp_path, missing):
    """Whatever the run had come to: some of a sweep, of the pilot, of a further size, of an arm, or no sweep at all."""
    write_made(SMALL, tmp_path, lambda trial: missing not in trial.label)
    found = reread(SMALL, tmp_path)
    write(found, found.preset, tmp_path)
    assert unread(tmp_path) == []
    (stray, *_) = tmp_path.glob("trials/*/result.json")
    stray.parent.rename(stray.parent.with_name("language.train-0123456789abcdef"))
    assert unread(tmp_path) == ["language.train-0123456789abcdef"]


@pytest.mark.parametrize("place", PLACES, ids=lambda path: path.name)
def test_a_shipped_record_is_written_again_as_the_same_bytes(place, tmp_path):
    for path in place.glob("trials/*/result.json"):
        write_sealed(tmp_path / "again.json", to_json(load_record(path.parent)))
        assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("place", PLACES, ids=lambda path: path.name)
def test_shipped_tables_follow_from_shipped_results(place):
    found = read(place)
    stored = json.loads((place / "claims.json").read_text())
    assert list(found.tables) == stored["experiments"]
    rows = as_rows(found.ledger)
    shown = [row for row in rows["claims"] if row["experiment"] in found.tables]
    assert shown == [row for row in stored["claims"] if row["experiment"] in found.tables]
    assert [row for row in rows["facts"] if row["where"]] == [row for row in stored["facts"] if row["where"]]
    text = (place / "tables.md").read_text()
    assert all(render(table) in text for table in found.tables.values())


@pytest.mark.parametrize("place", PLACES, ids=lambda path: path.name)
def test_what_cannot_be_told_is_smaller_than_what_could_have_been_shown(place):
    """An effect that is seen four times of five at a level lies beyond what is significant at it."""
    rows = read(place).ledger.rows
    unclear = [row for row in rows if row.verdict == CANNOT_TELL and row.claim.criterion.rule in ("above", "below")]
    for row in unclear:
        if row.ours is not None and not too_few(row.ours):
            effect = abs(row.ours.mean - row.claim.criterion.target)
            assert effect < row.claim.criterion.smallest(row.ours, row.level), row.claim.id


@pytest.mark.parametrize("folder", sorted({path.parents[2].name for path in RECORDS}))
def test_shipped_results_come_from_the_projects_own_history(folder):
    """Made from a tree without changes in src, by a commit or content of the history, or by what it came out alike."""
    if git("rev-parse", "HEAD").returncode != 0:
        pytest.skip("not a git checkout")
    place = ROOT / "results" / folder
    for path in (path for path in RECORDS if path.parents[2] == place):
        made_by = load_record(path.parent).commit
        assert made_by, "a result without a commit"
        assert not made_by.endswith("+"), f"{made_by}: there were changes in src"
    found = json.loads((place / CONFIRMED).read_text()) if (place / CONFIRMED).exists() else {}
    confirmed = {key: load_record(place / FOLDER / key) for key in found}
    for key, record in confirmed.items():
        again = found[key]
        assert in_history(again["commit"], None), f"{key} was repeated by a commit that is not in the history"
        if record.work == TIMED:
            assert again["comes_out"] == pytest.approx(shown(record), rel=TIME_TOLERANCE), key
        else:
            assert again["comes_out"] == shown(record), key
    assert lost(place).keys() <= {kind_of(record) for record in confirmed.values()}


def test_the_models_of_the_quick_preset_have_learned():
    """The standard model's perplexity, mean of its seeds: 150 steps at a poor learning rate leave it above 200."""
    place = ROOT / "results" / "quick"
    found = read(place).tables["lm-main"].quantities
    tested, validated = (found[quantity[STANDARD].on("stdlib")] for quantity in (PERPLEXITY, ON_VALIDATION))
    assert tested.n == validated.n == 2
    assert tested.mean <= 135
    assert validated.mean <= 120


def arena():
    """The arena as far as its records go, with what they decide."""
    place = ROOT / "results" / "arena"
    return read(place) if place in PLACES else reread(PRESETS["arena"], place)


def test_the_best_rate_of_every_finished_sweep_of_the_arena_lies_inside_its_grid():
    """At every size, whatever else is finished."""
    found = arena()
    sizes = (found.preset, *(found.preset.at(size) for size in found.preset.text.sizes))
    assert sweep.finished(found.preset)
    assert {one.text.recipe: sweep.at_edge(one, found.outcome.result) for one in sizes} == {
        one.text.recipe: [] for one in sizes
    }


def test_what_quick_and_the_arena_say_of_language_models_points_the_same_way():
    place = ROOT / "results" / "quick"
    quick, tuned = (
        {name: found.tables[name] for name in LANGUAGE if name in found.tables} for found in (read(place), arena())
    )
    pairs = in_both(quick, tuned)
    if not pairs:
        pytest.skip("results/arena has none of the comparisons of results/quick yet")
    assert contrary(pairs) == []


def test_every_record_that_ships_is_looked_at():
    assert {path.parents[2].name for path in RECORDS} >= {place.name for place in PLACES}
    tracked = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=False)
    listed = [line for line in tracked.stdout.splitlines() if line.endswith("/result.json")]
    assert {ROOT / line for line in listed} <= set(RECORDS)


def test_the_end_of_a_reproduction_fits_one_screen():
    """The facts and what is counted, as ``make reproduce`` ends with on a terminal of 80 columns."""
    place = ROOT / "results" / "quick"
    found = read(place).ledger
    screen = io.StringIO()
    console = Console(width=80, file=screen)
    console.print(ledger.facts_table(found))
    for line in ledger.counts(found):
        console.print(line, markup=False)
    assert len(screen.getvalue().splitlines()) + AFTER <= SCREEN, screen.getvalue()


def test_shipped_results_are_shown_folder_by_folder(language_smoke, tmp_path):
    _, out = language_smoke
    shutil.copytree(out, tmp_path / "results" / "smoke", ignore=shutil.ignore_patterns("training"))
    block = shipped(tmp_path / "results")
    assert block.startswith("### smoke\n")
    assert "| Boosted attention has a lower perplexity than standard attention. | text:" in block
    assert "| boosted | " in block
    with pytest.raises(ValueError, match="holds no results"):
        shipped(tmp_path)


@pytest.fixture(scope="module")
def tournament(tmp_path_factory):
    """A folder of results with a finished tournament in it, and what it holds."""
    results = tmp_path_factory.mktemp("results")
    now, known = finished()
    out = results / "forms"
    for trial in all_trials(["lm-forms"], now):
        (out / FOLDER / trial.key).mkdir(parents=True)
        write_record(out / FOLDER / trial.key, trial, known[trial.key], 1.0)
    found = reread(PRESET, out)
    write(found, found.preset, out)
    return results, found


def test_a_folder_of_the_tournament_shows_its_table(tournament):
    results, found = tournament
    block = shipped(results)
    assert f"#### {found.tables['lm-forms'].title}\n" in block
    assert all(f"| {name} | " in block for name in found.tables["lm-forms"].rows)
    assert all(note in block for note in found.tables["lm-forms"].notes)
    assert f"| {A_FORM_PAYS.sentence} | wikitext-2" in block


def test_pictures_stand_beside_the_page(tournament, tmp_path, capsys):
    results, _ = tournament
    page, picture = tmp_path / "page.md", tmp_path / "results" / "forms" / "forms.svg"

    def command(*words) -> int:
        with pytest.raises(SystemExit) as stop:
            main(["results", str(results), *map(str, words)])
        return int(stop.value.code or 0)

    page.write_text("<!-- results -->\n<!-- /results -->\n")
    assert command("--page", page) == 0
    assert "](results/forms/forms.svg)\n" in page.read_text()
    assert picture.read_text().startswith("<svg ")
    assert command("--check", page) == 0
    picture.write_text(picture.read_text().replace("</text>", "!</text>", 1))
    capsys.readouterr()
    assert command("--check", page) == 1
    assert capsys.readouterr().out == f"{picture} is not the picture that the results give\n"
    picture.unlink()
    assert command("--check", page) == 1
    assert capsys.readouterr().out == f"{picture} is missing: a picture of the results\n"


def test_shipped_pictures_are_those_of_the_shipped_results():
    assert picture_problems(ROOT / "docs" / "results.md", ROOT / "results") == []
