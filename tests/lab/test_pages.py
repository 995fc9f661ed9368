"""Numbers in prose: every one is what the results say, and one that is not is named."""

import random
import re
from pathlib import Path

import pytest

from boosted_attention.cli.main import main
from boosted_attention.lab.pages import BLOCK, BLOCKS, INTERVAL, REFERENCE, Known, blanked, fill, problems

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "docs/results.md",
    "docs/log.md",
    "docs/architecture.md",
    "docs/scaling.md",
    "docs/judging.md",
)
NUMBER = re.compile(r"\d+\.\d+")


def text_of(page):
    return (ROOT / page).read_text()


@pytest.mark.parametrize("page", PAGES)
def test_every_number_is_what_the_results_say(page, monkeypatch):
    """The error rates of judging.md take long: tests/lab/judging/test_error_rates.py is about their block."""
    text = text_of(page)
    for block in BLOCK.finditer(text):
        if block["kind"] == "error rates":
            monkeypatch.setitem(BLOCKS, "error rates", lambda results, inside=block["inside"]: inside)
    assert problems(text, RESULTS, page) == []


def test_twenty_changed_digits_are_all_named():
    """Drawn from README and docs/results.md: means and ends of intervals, in blocks and at references."""
    draw, changed = random.Random(7), []
    for page, count in (("docs/results.md", 14), ("README.md", 6)):
        text = text_of(page)
        spots = [m for m in NUMBER.finditer(text) if is_result(text, m.start())]
        lines = text.splitlines()
        picked = draw.sample(spots, min(count, len(spots)))
        for spot in picked:
            line = text.count("\n", 0, spot.start())
            column = spot.end() - 1 - (text.rfind("\n", 0, spot.start()) + 1)
            digit = lines[line][column]
            other = str((int(digit) + 1) % 10)
            lines[line] = lines[line][:column] + other + lines[line][column + 1 :]
            changed.append((page, line + 1, spot[0][:-1] + other))
        named = problems("\n".join(lines) + "\n", RESULTS, page)
        for where, line, number in changed:
            if where == page:
                assert any(said.startswith(f"{page}:{line}: ") and number in said for said in named), (
                    page,
                    line,
                    number,
                )
    assert len(changed) == 20


def is_result(text: str, start: int) -> bool:
    """Whether a number stands in a block of results or at a reference."""
    blocks = [m.span("inside") for m in BLOCK.finditer(text)]
    references = [m.span("value") for m in REFERENCE.finditer(blanked(text))]
    return any(low <= start < high for low, high in blocks + references)


def test_an_interval_needs_a_reference():
    page = "It gains 7.8 [6.6, 9.1] points.\n"
    assert problems(page, RESULTS, "page") == ["page:1: 7.8 [6.6, 9.1] is a result without a reference to its quantity"]
    exempt = f"<!-- without references -->\n{page}<!-- /without references -->\n```\n{page}```\n"
    assert problems(exempt, RESULTS, "page") == []
    assert INTERVAL.search(page)


def test_a_number_where_results_are_stated_needs_a_reference():
    said = "It gains 7.8 points, a rise of 12 %, or +3.5%, where 150 steps of 3,000 tokens were made.\n"
    held = f"## What holds\n\n{said}\n## Other\n"
    numbers = ("7.8", "12 %", "+3.5%")
    expected = [f"README.md:3: {number} is a number without a reference to its quantity" for number in numbers]
    assert problems(held, RESULTS, "README.md") == expected
    assert problems(f"{said}\n## What holds\n\n## Other\n\n{said}", RESULTS, "README.md") == []
    assert len(problems(said, RESULTS, "docs/results.md")) == 3
    assert len(problems(said, RESULTS, str(ROOT / "docs/results.md"))) == 3
    assert problems(said, RESULTS, "docs/log.md") == []


def test_numbers_with_a_reference_and_settings_are_no_results_without_one():
    mine = "It gains 7.8 [6.5, 9.1]<!--= quick rounds: M=2 - M=1 --> points.\n"
    assert problems(mine, RESULTS, "docs/results.md") == []
    settings = "Models of 0.4 M parameters, intervals of 95 %, from sigma = 0.3 to 0.5.\n"
    assert problems(settings, RESULTS, "docs/results.md") == []
    (said,) = problems("Models of 0.4 G parameters.\n", RESULTS, "docs/results.md")
    assert said.startswith("docs/results.md:1: 0.4 is")


def test_a_reference_must_exist():
    for reference in ("nowhere rounds: M=2 - M=1", "cpu-wikitext-2 rounds: M=2 - M=1"):
        (said,) = problems(f"It gains 7.8<!--= {reference} --> points.\n", RESULTS, "page")
        assert said == f"page:1: 7.8 refers to {reference}, which the results do not have"


def test_the_papers_value_is_that_of_the_claims():
    page = "The paper has {}<!--= paper's rounds: M=2 - M=1 -->.\n"
    assert problems(page.format("9.5"), RESULTS, "page") == []
    assert problems(page.format("9.6"), RESULTS, "page") == [
        "page:1: 9.6 is 9.5 by the claims (paper's rounds: M=2 - M=1)"
    ]
    (said,) = problems(page.format("9.5 [9.0, 10.0]"), RESULTS, "page")
    assert "has an interval, which the claims do not have" in said
    for reference in ("nowhere: M=2 - M=1", "rounds: M=9 - M=1", "rounds: M=2 - halfway from M=1 to Bayes"):
        (said,) = problems(f"9.5<!--= paper's {reference} -->\n", RESULTS, "page")
        assert said == f"page:1: 9.5 refers to paper's {reference}, which the claims do not have"


def test_blocks_are_written_between_their_marks(tmp_path):
    page = "before\n<!-- results -->\nold\n<!-- /results -->\nafter\n"
    filled = fill(page, RESULTS, "page")
    assert filled.startswith("before\n<!-- results -->\n### ")
    assert filled.endswith("<!-- /results -->\nafter\n")
    assert fill(filled, RESULTS, "page") == filled
    assert problems(filled, RESULTS, "page") == []
    assert problems(page, RESULTS, "page")
    with pytest.raises(ValueError, match="has no place for results"):
        fill("nothing", RESULTS, "page")


@pytest.mark.parametrize("page", ["README.md", "docs/log.md"])
def test_numbers_at_references_are_written_anew(page):
    """With as many decimals as they had; what stands without references stays as it is."""
    text = text_of(page)
    spots = [m.span("value") for m in REFERENCE.finditer(blanked(text))]
    assert spots
    changed = text
    for low, high in spots:
        changed = changed[:low] + re.sub(r"\d(?=\D|$)", "7", text[low:high]) + changed[high:]
    assert changed != text
    assert problems(changed, RESULTS, page)
    assert fill(changed, RESULTS, page) == text


def test_a_number_keeps_its_form_and_one_that_the_results_lack_stays():
    page = "It gains {}<!--= quick rounds: M=2 - M=1 --> points.\n"
    (mean, _, _) = Known(RESULTS).numbers("quick", "rounds", "M=2 - M=1")
    for old, new in (("+1", f"+{mean:.0f}"), ("1.00", f"{mean:.2f}"), ("1,000.0", f"{mean:.1f}")):
        assert fill(page.format(old), RESULTS, "page") == page.format(new)
    absent = page.replace("M=2 -", "M=9 -").format("1.0")
    assert fill(absent, RESULTS, "page") == absent


def test_a_block_may_be_one_table():
    mark = "table quick rounds"
    page = f"before\n<!-- {mark} -->\n<!-- /{mark} -->\nafter\n"
    filled = fill(page, RESULTS, "page")
    assert filled.startswith(f"before\n<!-- {mark} -->\n\n| | ")
    assert "##" not in filled
    assert problems(filled, RESULTS, "page") == []
    number = NUMBER.search(filled)[0]
    (said,) = problems(filled.replace(number, "123.4", 1), RESULTS, "page")
    assert said == f"page:6: 123.4 is {number} by the results"
    for absent in ("quick runds", "nowhere rounds"):
        folder, experiment = absent.split()
        with pytest.raises(ValueError, match=f"results/{folder} has no table '{experiment}', which a page asks for"):
            fill(page.replace("quick rounds", absent), RESULTS, "page")


def test_the_command_checks_pages(tmp_path, capsys):
    page = tmp_path / "page.md"
    for text, code in (("nothing\n", 0), ("7.8 [6.6, 9.1]\n", 1)):
        page.write_text(text)
        with pytest.raises(SystemExit) as stop:
            main(["results", str(RESULTS), "--check", str(page)])
        assert stop.value.code == code
    assert "without a reference" in capsys.readouterr().out
