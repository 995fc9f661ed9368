"""The page in a real browser: Debian's chromium, driven by playwright."""

import re
import time

import pytest

from boosted_attention.explore.explorer import Explorer
from tests.explore.conftest import served

WHOLE = "!document.querySelector('#sides').classList.contains('waiting')"  # all layers have come
HOSTILE = "<img src=x onerror=alert(1)></script>"


def opened(browser, address, seen, width=1280):
    """The page in a tab of its own; ``seen`` is given console messages, errors, dialogs and requests elsewhere."""
    tab = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    tab.on("console", lambda message: seen.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: seen.append(f"error: {error}"))
    tab.on("dialog", lambda dialog: seen.append(f"dialog: {dialog.message}"))
    own = (address.partition("#")[0], "data:", "blob:")
    tab.on("request", lambda request: None if request.url.startswith(own) else seen.append(request.url))
    tab.set_default_timeout(10_000)
    tab.goto(address)
    tab.locator(".guesses button").first.wait_for()
    settled(tab, WHOLE)
    return tab


@pytest.fixture
def page(browser, server, request):
    """The page, 1,280 pixels wide where a test asks for no other width; any message or request fails the test."""
    seen = []
    tab = opened(browser, server.address, seen, getattr(request, "param", 1280))
    yield tab
    tab.context.close()
    assert seen == []


def settled(page, what):
    """Wait until an expression holds on the page; playwright's own way evaluates strings, which the page forbids."""
    deadline = time.monotonic() + 10
    while not page.evaluate(what):
        assert time.monotonic() < deadline, what
        page.wait_for_timeout(10)


def guesses(page):
    return page.locator(".guesses").first.locator(".number").all_inner_texts()


@pytest.mark.parametrize("page", [1280, 390], indirect=True, ids=["desktop", "phone"])
def test_typing_shows_what_comes_next(page):
    page.locator("#text").fill("import os, sys\n\nclass ")
    settled(page, "document.querySelector('#tokens').textContent.includes('class')")
    assert page.locator("#tokens").inner_text().startswith("import os, sys")
    assert page.locator(".guesses").count() == 2
    assert page.locator(".guesses").first.locator("li").count() == 8
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#text").fill(HOSTILE)
    settled(page, "document.querySelector('#tokens').textContent.includes('onerror')")
    assert page.locator("#tokens img").count() == 0
    page.locator("#text").fill("")
    assert "Type a text" in page.locator("#trouble").inner_text()
    page.wait_for_timeout(300)  # in which layers of the text before might still come
    assert "Type a text" in page.locator("#trouble").inner_text()


def test_fast_typing_ends_with_the_newest_text(page, server, browser):
    """While another tab asks too."""
    seen = []
    other = opened(browser, server.address, seen)
    for tab, text in ((page, "raise ValueError(name)"), (other, "return [x for x in y]")):
        tab.locator("#text").fill("")
        tab.locator("#text").press_sequentially(text)
    for tab, last in ((page, "name"), (other, "y")):
        settled(tab, f"document.querySelector('#tokens').textContent.includes('{last}')")
        assert tab.locator("#tokens").inner_text() == tab.locator("#text").input_value()
        assert tab.locator("#trouble").is_hidden()
    other.context.close()
    assert seen == []


def test_a_token_is_picked_by_click_and_by_key(page):
    tokens, said = page.locator("#tokens button"), page.locator("#said")
    tokens.nth(2).click()
    settled(page, "document.querySelector('#said').textContent.includes('token 2 of')")
    assert "where the text goes on with" in said.inner_text()
    for key, at in (("ArrowRight", 3), ("ArrowLeft", 2), ("Home", 0), ("ArrowLeft", 0)):
        page.keyboard.press(key)
        settled(page, f"document.querySelector('#said').textContent.includes('token {at} of')")
    assert page.evaluate("document.activeElement.getAttribute('aria-current')") == "true"
    settled(page, WHOLE)
    facts = page.locator(".round .facts").nth(1).inner_text()
    assert re.search(r"looks at “.*gate 0\.\d+ · residual norm .* adds .*\nprediction here .* nats", facts)
    page.locator("#head").select_option("1")
    assert "gate of head 1" in page.locator(".round .facts").nth(1).inner_text()
    before = tokens.first.get_attribute("style")
    page.locator("#shade").select_option("attention 0.1.1")
    assert tokens.first.get_attribute("style") != before


def test_switching_a_round_moves_the_prediction(page):
    before = guesses(page)
    switch = page.get_by_role("checkbox", name="layer 1, round 1: on")
    switch.uncheck()
    page.locator(".moved.up, .moved.down").first.wait_for()
    settled(page, WHOLE)
    assert "switched off" in page.locator(".round.off .facts").inner_text()
    assert guesses(page) != before
    switch.check()
    page.locator(".moved.up, .moved.down").first.wait_for(state="detached")
    assert guesses(page) == before
    slider = page.get_by_role("slider", name="layer 2, round 1: factor of the gate")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.locator(".moved.up, .moved.down").first.wait_for()
    assert page.locator(".control .number").nth(2).inner_text().endswith(" 1.05")
    page.get_by_role("button", name="All rounds as trained").click()
    page.locator(".moved.up, .moved.down").first.wait_for(state="detached")
    assert guesses(page) == before


def test_both_models_stand_side_by_side(page):
    assert page.locator("#sides section").count() == 2
    assert page.locator("#sides h2").all_inner_texts() == ["boosted", "standard"]
    assert page.locator("#sides section").nth(1).locator(".round").count() == 4


def test_writing_token_by_token_shows_what_else_might_have_come(page):
    page.get_by_role("button", name="Next token").click()
    page.locator("#steps li").first.wait_for()
    assert "instead:" in page.locator("#steps li").first.inner_text()
    page.get_by_role("button", name="Write 20").click()
    settled(page, "document.querySelectorAll('#steps li').length >= 3")
    page.get_by_role("button", name="Stop").click()
    settled(page, "document.querySelector('#stop').disabled")
    second = page.locator("#steps li").nth(1)
    other = second.locator("button").first
    wanted = other.inner_text()
    other.click()
    settled(page, "document.querySelectorAll('#steps li').length === 2")
    assert page.locator("#steps li").nth(1).locator(".chosen").inner_text() == wanted
    page.get_by_role("button", name="Take back").click()
    settled(page, "document.querySelectorAll('#steps li').length === 1")
    typed = page.locator("#text").input_value()
    page.get_by_role("button", name="Keep as text").click()
    settled(page, "document.querySelector('#steps-section').hidden")
    assert len(page.locator("#text").input_value()) > len(typed)


def test_a_reload_and_a_link_bring_a_view_back(page, browser, server):
    page.locator("#text").fill("for line in lines:\n    ")
    page.get_by_role("checkbox", name="layer 0, round 1: on").uncheck()
    page.locator("#tokens button").nth(1).click()
    settled(page, "document.querySelector('#said').textContent.includes('token 1 of')")
    page.locator(".moved.up, .moved.down").first.wait_for()
    shown = guesses(page)
    page.reload()
    settled(page, "document.querySelector('#said').textContent.includes('token 1 of')")
    assert page.locator("#text").input_value() == "for line in lines:\n    "
    assert not page.get_by_role("checkbox", name="layer 0, round 1: on").is_checked()
    assert guesses(page) == shown
    page.get_by_role("button", name="Link to this view").click()
    link = page.locator("#link-field").input_value()
    assert server.token not in link
    seen = []
    second = opened(browser, server.address, seen)  # a second tab, which opens the link
    second.get_by_role("button", name="Link to this view").click()
    second.locator("#link-field").fill(link)
    second.locator("#link-field").press("Enter")
    settled(second, "document.querySelector('#said').textContent.includes('token 1 of')")
    assert guesses(second) == shown
    second.context.close()
    assert seen == []


def test_a_view_is_saved_as_a_drawing(page, tmp_path):
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as SVG").click()
    download.value.save_as(tmp_path / "rounds.svg")
    text = (tmp_path / "rounds.svg").read_text()
    assert text.startswith("<svg")
    assert "layer 3, round 1" in text
    assert text.count("<rect") > 50


def test_a_text_that_is_too_long_is_said_and_the_page_goes_on(page):
    page.locator("#text").fill("word " * 300)
    page.locator("#trouble:not([hidden])").wait_for()
    assert "these models read at most 128. Shorten it." in page.locator("#trouble").inner_text()
    page.locator("#text").fill("word")
    page.locator("#trouble").wait_for(state="hidden")


@pytest.mark.parametrize(("page", "scheme"), [(1280, "light"), (390, "dark")], indirect=["page"])
def test_it_is_accessible(page, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme)
    page.get_by_role("button", name="Next token").click()
    page.locator("#steps li").first.wait_for()
    page.get_by_role("checkbox", name="layer 0, round 1: on").uncheck()
    page.locator(".moved.up, .moved.down").first.wait_for()
    settled(page, WHOLE)
    found = Axe().run(page)
    assert [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found.response["violations"]] == []


def test_a_server_that_is_gone_or_another_one_is_said(browser, runs):
    explorer, seen = Explorer(runs[:1], ["boosted"], "boosted-attention explore 'a run'"), []
    with served(explorer) as server:
        port = server.server_port
        tab = opened(browser, server.address, seen)
    tab.locator("#text").fill("def ")
    tab.locator("#trouble:not([hidden])").wait_for()
    assert "boosted-attention explore 'a run'" in tab.locator("#trouble").inner_text()
    with served(explorer, port):  # with a token of its own
        tab.locator("#text").fill("def x")
        tab.get_by_text("has a new address").wait_for()
    tab.context.close()
    assert seen
    assert all("Failed to load resource" in message for message in seen)  # the browser's own words
