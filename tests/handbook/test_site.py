"""The documentation as a site: built strictly, complete, and without a load from outside."""

import re
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

from boosted_attention.cli.main import usage
from tests.processes import environment

ROOT = Path(__file__).parents[2]
LOADS = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}


class Page(HTMLParser):
    """What a page loads, where it links to, and the anchors it has."""

    def __init__(self, path: Path):
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if found.get("id"):
            self.anchors.add(found["id"])
        if tag in LOADS and found.get(LOADS[tag]) and found.get("rel") != "canonical":
            self.loads.append(found[LOADS[tag]])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site") / "docs"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=environment(NO_MKDOCS_2_WARNING="1"), check=False
    )
    assert done.returncode == 0, done.stderr  # a warning of mkdocs is an error
    return out


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_page_of_the_docs_is_there(site):
    sources = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {path.relative_to(site) for path in site.rglob("*.html")} == {*sources, Path("404.html")}


def test_nothing_is_loaded_from_outside(site, pages):
    for path, page in pages.items():
        for load in page.loads:
            assert not urlsplit(load).netloc, f"{path.name}: {load}"
            assert load.startswith("data:") or (path.parent / unquote(urldefrag(load).url)).exists(), load
    for style in site.rglob("*.css"):
        assert not re.findall(r"url\(\s*['\"]?(?:https?:)?//|@import", style.read_text()), style.name


def test_links_and_anchors_lead_somewhere(pages):
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.name}: {link}"
            if target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.name}: {link}"


def test_pages_have_the_figures_and_help_they_ask_for(site):
    for source in (ROOT / "docs").rglob("*.md"):
        asked = re.findall(r"^<!--(figure|help) (.+?)-->", source.read_text(), flags=re.MULTILINE)
        page = (site / source.relative_to(ROOT / "docs").with_suffix(".html")).read_text()
        assert page.count('<figure class="measured"') == sum(kind == "figure" for kind, _ in asked), source.name
        for kind, name in asked:
            expected = f'id="figure-{name.split()[1]}"' if kind == "figure" else f"usage: boosted-attention {name}"
            assert expected in page


def test_every_command_has_its_help(site):
    commands = re.findall(r"^  (\w+) ", usage(), flags=re.MULTILINE)
    page = (site / "reference" / "commands.html").read_text()
    assert len(commands) > 10
    assert re.findall(r'<h2 id="(\w+)"', page) == commands


def test_the_reference_describes_options_that_are_made_of_a_dataclass(site):
    page = (site / "reference" / "layers.html").read_text()
    assert "Source of a correction" in page
    assert re.search(r"kv_source.{0,200}Source of a correction", page, flags=re.DOTALL)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_in_a_browser(address, browser, width, scheme):
    said, outside = [], []
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda r: None if r.url.startswith((address, "data:")) else outside.append(r.url))
    for name in ("index", "start", "ideas/rounds", "ideas/caches", "reference/layers", "results"):
        page.goto(f"{address}/{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)"), name
    page.goto(f"{address}/ideas/rounds.html")
    dot = page.evaluate("getComputedStyle(document.querySelector('.chart .dot')).fill")
    assert dot == {"light": "rgb(31, 111, 180)", "dark": "rgb(108, 176, 238)"}[scheme]
    assert not said
    assert not outside
    context.close()


def test_the_site_can_be_searched(address, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{address}/index.html")
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("silent")
    page.wait_for_selector(".md-search-result__item")
    assert "Starting silent" in page.inner_text(".md-search-result__list")
    page.close()
