"""What pages of the documentation are completed with."""

from types import SimpleNamespace

import pytest
from handbook.hooks import figures, help_text, on_page_markdown
from mkdocs.exceptions import PluginError


def completed(markdown: str, place: str = "ideas/page.md") -> str:
    return on_page_markdown(markdown, page=SimpleNamespace(file=SimpleNamespace(src_uri=place)))


def test_a_comment_becomes_the_figure_of_the_shipped_results():
    page = completed("before\n\n<!--figure quick budget-->\n\nafter")
    assert page.startswith("before\n\n<figure")
    assert page.endswith("</figure>\n\nafter")
    assert "\n" not in page[len("before\n\n") : -len("\n\nafter")]  # one line, which Markdown leaves alone
    assert page.count("<svg") == len(figures("quick")["budget"].panels)


def test_what_is_not_there_is_named():
    with pytest.raises(PluginError, match=r"results/quick has no figure 'bugdet'; it has .*budget"):
        completed("<!--figure quick bugdet-->")
    with pytest.raises(PluginError, match="fly is no command"):
        completed("<!--help fly-->")


def test_help_is_what_the_command_prints():
    assert help_text("check").startswith("usage: boosted-attention check")
    assert "&lt;" not in help_text("check")


def test_the_packages_picture_is_found_from_every_folder():
    picture = "src/boosted_attention/report/boosting.svg"
    assert completed(f"![x](../{picture})", "index.md") == "![x](assets/boosting.svg)"
    assert completed(f"![x](../../{picture})") == "![x](../assets/boosting.svg)"
