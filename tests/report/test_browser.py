"""The page in a real browser: Debian's chromium, driven by playwright."""

import pytest


@pytest.fixture(params=[(1280, 900), (390, 844)], ids=["desktop", "phone"])
def page(browser, made_report, request):
    """Opened from disk; any request, console message or error fails the test."""
    width, height = request.param
    context = browser.new_context(viewport={"width": width, "height": height})
    opened, seen = context.new_page(), []
    opened.on("console", lambda message: seen.append(f"console: {message.text}"))
    opened.on("pageerror", lambda error: seen.append(f"error: {error}"))
    opened.on("dialog", lambda dialog: seen.append(f"dialog: {dialog.message}"))
    address = (made_report / "report.html").as_uri()
    opened.on("request", lambda r: None if r.url == address or r.url.startswith("data:") else seen.append(r.url))
    opened.goto(address)
    yield opened
    assert seen == []
    context.close()


def test_it_fits_the_screen(page):
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for text in (
        "What holds",
        "The claims behind the facts",
        "Tables, beside the paper's",
        "Figures",
        "Round explorer",
        "What was run",
    ):
        assert page.get_by_role("heading", name=text, exact=True).count() == 1


def test_it_opens_with_the_facts(page):
    """Cards stand on the first screen of a desktop, before figures, claims and tables, which are folded."""
    cards = page.locator(".card")
    assert cards.count() > 8
    assert cards.first.is_visible()
    assert page.locator(".opening").inner_text().startswith(("All 12 facts", "Of the paper's 12 facts"))
    order = page.locator("main > section").evaluate_all("all => all.map(one => one.id)")
    assert order[:4] == ["facts", "figures", "claims", "tables"]
    if page.viewport_size["width"] > 1000:
        assert page.locator("#facts").evaluate("one => one.getBoundingClientRect().bottom") <= 900
    assert page.locator(".fold[open], .waiting[open], .card details[open]").count() == 0


def test_claims_are_filtered_and_open(page):
    shown, folds = page.locator(".claim:not(.hidden)"), page.locator(".claims > .fold:not(.hidden)")
    total, sections = shown.count(), folds.count()
    tables = page.locator("#tables > .fold").count()
    assert page.locator("#count").inner_text() == f"{total} of {total} claims and {tables} of {tables} tables shown"
    button = page.locator('[data-filter="reproduced"]')
    number = page.locator('.claim[data-verdict="reproduced"]').count()
    assert 0 < number < total
    button.click()
    assert shown.count() == total - number
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert page.locator(".fold[open]").count() == 0  # as before the search
    page.locator("#section").select_option("6.4")
    assert 0 < shown.count() < total
    assert set(shown.evaluate_all("all => all.map(one => one.dataset.section)")) == {"6.4"}
    page.locator("#section").select_option("")
    page.locator("#words").fill("hopfield")
    assert 0 < shown.count() < total
    assert 0 < folds.count() < sections
    first = shown.first
    assert first.is_visible()  # its fold is open
    assert not first.locator(".evidence").is_visible()
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    assert first.locator(".evidence").is_visible()
    assert "Decided by" in first.inner_text()


def test_links_open_what_they_name(page):
    claim, table = page.locator("#claim-rounds-gain"), page.locator("#table-rounds")
    assert not claim.is_visible()
    page.locator("#words").fill("hopfield")  # a search that hides it does not get in the way
    page.evaluate("location.hash = '#claim-rounds-gain'")
    claim.locator(".evidence").wait_for()
    assert page.locator("#words").input_value() == ""
    claim.get_by_role("link", name="two-rounds").click()
    card = page.locator(".card.shown")
    assert card.get_attribute("data-fact") == "two-rounds"
    box = card.bounding_box()
    assert 0 <= box["y"] < page.viewport_size["height"]
    page.evaluate("location.hash = '#table-rounds'")
    table.locator("table").first.wait_for()
    page.evaluate("location.hash = '#fact-size'")
    page.locator("#fact-size").wait_for()  # in the fold of what was not run


def test_folds_are_open_on_paper_and_closed_afterwards(page):
    is_seen = "one => one.checkVisibility()"
    page.emulate_media(media="print")
    assert page.locator("#claim-rounds-gain .evidence").evaluate(is_seen)
    page.emulate_media(media="screen")
    assert not page.locator("#claim-rounds-gain .evidence").evaluate(is_seen)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


@pytest.mark.parametrize(("page", "scheme"), [((1280, 900), "light"), ((390, 844), "dark")], indirect=["page"])
def test_it_is_accessible(page, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('.card details, .waiting, .counts').forEach(fold => fold.open = true)")
    page.evaluate("for (const id of ['claim-rounds-gain', 'table-rounds']) location.hash = id")  # one fold of each kind
    found = Axe().run(page)
    assert [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found.response["violations"]] == []


def test_legends_switch_series(page):
    figure = page.locator("#figure-rounds")
    button = figure.locator(".legend button").first
    series = figure.locator('[data-series="0"]').first
    assert series.is_visible()
    button.click()
    assert not series.is_visible()
    button.click()
    assert series.is_visible()
    figure.locator("circle").first.hover(force=True)
    assert "95 % interval" in page.locator("#tip").inner_text()


def test_the_explorer_by_click_and_by_key(page):
    explorer = page.locator("#explorer")
    current = explorer.locator('[aria-current="true"]')
    tokens = explorer.locator(".text button")
    tokens.nth(5).click()
    assert current.count() == 1
    said = explorer.locator(".said")
    assert "(token 5)" in said.inner_text()
    for key, token in (
        ("ArrowRight", 6),
        ("ArrowLeft", 5),
        ("ArrowDown", 15),
        ("Home", 0),
        ("ArrowLeft", 0),
        ("End", 15),
    ):
        page.keyboard.press(key)
        assert f"(token {token})" in said.inner_text()
    assert page.evaluate("document.activeElement === document.querySelector('#explorer [aria-current]')")
    explorer.locator(".back").click()
    assert "(token 14)" in said.inner_text()
    layers, maps = explorer.locator(".maps .layer"), explorer.locator(".maps svg")
    assert layers.count() == 4
    assert maps.count() == 12  # standard, round 0 and round 1 in each
    assert maps.first.locator("rect").count() == 15
    assert "gate 0." in layers.first.inner_text()
    assert "residual norm" in layers.first.inner_text()
    assert explorer.locator(".both tr").count() == 10
    before = tokens.nth(3).get_attribute("style")
    explorer.locator("select").select_option("0,0")
    assert tokens.nth(3).get_attribute("style") != before


def test_what_the_explorer_shows_is_the_analysis(page, made_report):
    import json

    results = json.loads((made_report / "results.json").read_text())
    analysis = next(
        r["result"] for r in results.values() if isinstance(r["result"], dict) and r["result"].get("explorer")
    )
    tokens = page.locator("#explorer .text button")
    assert tokens.count() == len(analysis["explorer"]["tokens"])
    tokens.nth(7).click()
    model, against = (analysis["explorer"][side]["loss"][7] for side in ("model", "against"))
    said = page.locator("#explorer .said").inner_text()
    assert f"boosted has a loss of {model:.3f} nats, standard of {against:.3f}" in said
    gate = analysis["explorer"]["model"]["layers"][1][1]["gate"][7]
    assert f"gate {gate:.3f}" in page.locator("#explorer .maps .layer").nth(1).inner_text()
