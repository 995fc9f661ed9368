"""The page: whole, the same every time, and safe whatever the texts say."""

import json
import re
import shutil

import pytest
from markupsafe import escape

from boosted_attention.cli.commands import reproduce_command
from boosted_attention.cli.main import main
from boosted_attention.lab.claims import CLAIMS
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.reproduce import reproduce
from boosted_attention.report.page import report_page, section_order, write_report
from boosted_attention.storage.locks import exclusive
from tests.cli.test_train import refused
from tests.report.made import EXPERIMENTS


@pytest.fixture(scope="module")
def page(made_report) -> str:
    return (made_report / "report.html").read_text()


def test_everything_is_there(page, made_report):
    assert len(re.findall('<details class="claim" data-verdict="', page)) == len(CLAIMS)
    for name in EXPERIMENTS:
        assert f'id="table-{name}"' in page
    figures = ("architecture", "results", "rounds", "gates", "hull", "entropy", "examples", "convergence", "capacity")
    for name in (*figures, "budget", "temperature", "importance", "dynamics", "specialisation"):
        assert f'id="figure-{name}"' in page, name
    for text in ("Round explorer", "What was run", "Data fingerprints", "boosted-attention reproduce lm-main"):
        assert text in page
    assert len(page) < 10e6


def test_every_claims_verdict_and_number(page, made_report):
    claims = json.loads((made_report / "claims.json").read_text())["claims"]
    claims.sort(key=lambda row: section_order(row["section"]))  # folded so; inside a fold, in the ledger's order
    entries = re.findall('<details class="claim".*?</details>', page, re.DOTALL)
    for row, entry in zip(claims, entries, strict=True):
        assert f'id="claim-{row["id"]}' in entry
        assert f">{row['verdict']}</span>" in entry
        assert row["criterion"].replace("'", "&#39;").replace(">", "&gt;") in entry


def test_the_same_results_give_the_same_bytes(page, made_report, tmp_path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(made_report, copy, ignore=shutil.ignore_patterns("training*", "report.html", "figures"))
    assert write_report(copy, reproduce_command).read_text() == page


def test_nothing_is_fetched_and_nothing_escapes(page):
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", page)
    assert "@import" not in page
    assert "url(" not in page
    assert "<img src=x" not in page  # of the text
    assert "<b>" not in page  # of the file's name
    assert "&lt;b&gt;" in page
    inside = page[page.index('id="explorer-data">') :]
    data = json.loads(inside[inside.index(">") + 1 : inside.index("</script>")])
    assert any("<" in token for token in data["tokens"])
    assert page.count("</script>") == 2


def test_a_report_of_a_part(made_report, tmp_path, text_file):
    """Without language models there is no inside and no explorer, and the page says what was not run."""
    preset = PRESETS["smoke"]
    found = reproduce(["rounds"], preset, tmp_path, workers=1)
    page = report_page(found, preset, lambda name, preset: f"compute {name} <again> with {preset.name}")
    assert "compute rounds &lt;again&gt; with smoke" in page
    assert 'id="explorer"' not in page
    assert 'id="inside"' not in page
    assert "which was not run" in page
    assert 'id="figure-rounds"' in page


def test_sections_are_in_the_papers_order():
    ordered = sorted(["App. C", "8", "10.1", "4.2", "5", "6.4", "4.1, 5", "App. B", "6.3", "4.1"], key=section_order)
    assert ordered == ["4.1", "4.1, 5", "4.2", "5", "6.3", "6.4", "8", "10.1", "App. B", "App. C"]


def test_report_refusals(tmp_path, made_report, capsys):
    assert "is not a folder of results" in refused(["report", tmp_path / "nowhere"], capsys)
    assert "holds no complete experiment" in refused(["report", tmp_path], capsys)
    copy = tmp_path / "damaged"
    shutil.copytree(made_report, copy, ignore=shutil.ignore_patterns("training*", "report.html"))
    result = next(copy.glob("trials/language.train-*/result.json"))
    whole = result.read_text()
    result.write_text(whole[:100])
    assert f"{result} is not JSON" in refused(["report", copy], capsys)
    result.write_text(whole.replace('"perplexity"', '"perplexitx"', 1))
    assert f"{result} is not what was written" in refused(["report", copy], capsys)
    claims = (copy / "claims.json").read_text()
    for damaged in (
        "{",
        claims.replace('"steps": 2', '"steps": "x"', 1),
        claims.replace(f'"{PRESETS["smoke"].text.recipe}"', '"mimi"', 1),
    ):
        assert damaged != claims
        (copy / "claims.json").write_text(damaged)
        assert "claims.json is not" in refused(["report", copy], capsys)
    assert not (copy / "report.html").exists()


def test_a_report_that_cannot_be_written(made_report, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(made_report, copy, ignore=shutil.ignore_patterns("training*", "report.html"))
    (copy / "report.html").mkdir()
    assert "report.html is a folder there" in refused(["report", copy], capsys)


def test_a_report_is_refused_while_another_process_writes_to_the_folder(made_report, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(made_report, copy, ignore=shutil.ignore_patterns("training*", "report.html"))
    with exclusive(copy):
        assert f"OUT {copy} is in use by another process" in refused(["report", copy], capsys)
    assert not (copy / "report.html").exists()
    with pytest.raises(SystemExit, match="0"):
        main(["report", str(copy)])
    assert (copy / "report.html").exists()


def test_a_figure_of_the_papers_size_is_not_judged_at_another_and_says_what_would_run_it(page):
    entry = page[page.index('id="claim-gate-layer-1"') :]
    entry = entry[: entry.index("</details>")]
    assert ">not run</span>" in entry
    assert "which was not run" not in entry  # the table is there, at another size
    assert "--preset paper" in entry


def test_every_fact_stands_at_the_top_with_its_verdict(page, made_report):
    facts = json.loads((made_report / "claims.json").read_text())["facts"]
    top = page[page.index('<section id="facts">') : page.index('<section id="figures">')]
    cards = re.findall(r'<article id="fact-.*?</article>', top, re.DOTALL)
    folded = re.findall(r'<li id="fact-([^"]+)"', top)
    assert len(cards) + len(folded) == len(facts) > 12
    assert folded == [fact["id"] for fact in facts if fact["verdict"] == "not run"]
    verdicts = {(re.search('data-fact="(.*?)"', c)[1], re.search('"soft">(.*?)<', c)[1]): c for c in cards}
    for fact in facts:
        if fact["verdict"] != "not run":
            card = verdicts[fact["id"], str(escape(fact["where"]))]
            assert f">{fact['verdict']}</span>" in card
            assert all(f'href="#claim-{part}' in card for part in fact["parts"])


def test_no_name_is_given_twice_and_every_link_leads_somewhere(page):
    names = re.findall(r' id="([^"]+)"', page)
    assert sorted(names) == sorted(set(names))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(names)


def test_report_says_where_it_is(made_report, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(made_report, copy, ignore=shutil.ignore_patterns("training*", "report.html"))
    with pytest.raises(SystemExit) as stop:
        main(["report", str(copy)])
    assert stop.value.code == 0
    assert str(copy / "report.html") in capsys.readouterr().out
