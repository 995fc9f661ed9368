"""Hooks of mkdocs: what pages are completed with when the site is built.

A page asks for it with a comment, which readers of the plain file do not see:

    <!--figure quick budget-->      a figure of results/quick, by its name
    <!--help train-->               what `boosted-attention train --help` prints
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from boosted_attention.chart import Figure, names
from boosted_attention.lab.reproduce import reread, stored_preset
from boosted_attention.report.page import reproduction_figures
from boosted_attention.report.svg import draw_figure

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "src" / "boosted_attention" / "report"
PICTURE = "boosting.svg"
ASKED = re.compile(r"<!--(figure|help) ([^>]+?)-->")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what pages show of the package's own files: its picture, and how figures are drawn."""
    for place in (PICTURE, "chart.css"):
        files.append(File.generated(config, f"assets/{place}", abs_src_path=str(REPORT / place)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put in what a page asks for, and find the package's picture where the site has it."""
    up = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace(f"{up}../src/boosted_attention/report/{PICTURE}", f"{up}assets/{PICTURE}")
    return ASKED.sub(answer, markdown)


def answer(asked: re.Match[str]) -> str:
    """Return the HTML that one comment asks for."""
    kind, words = asked[1], asked[2].split()
    if kind == "help":
        return f"<pre><code>{escape(help_text(words[0]))}</code></pre>"
    folder, name = words
    found = figures(folder)
    if name not in found:
        raise PluginError(f"results/{folder} has no figure {name!r}; it has {', '.join(found)}")
    return figure_html(found[name])


def help_text(command: str) -> str:
    """Return what a command says of itself."""
    plain = {**os.environ, "COLUMNS": "84", "NO_COLOR": "1"}
    words = [sys.executable, "-m", "boosted_attention", command, "--help"]
    done = subprocess.run(words, env=plain, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PluginError(f"{command} is no command of boosted-attention")
    return done.stdout.strip()


@cache
def figures(folder: str) -> Mapping[str, Figure]:
    """Return the figures of a folder of results that ships, by name."""
    place = ROOT / "results" / folder
    preset = stored_preset(place)
    plain, inside = reproduction_figures(reread(preset, place), preset)
    return {figure.name: figure for figure in (*plain, *inside)}


def figure_html(figure: Figure) -> str:
    """Return a figure with legend and caption, on one line, which Markdown leaves alone."""
    legend = "".join(f'<span><i class="s{i % 8}"></i>{escape(name)}</span>' for i, name in enumerate(names(figure)))
    return (
        f'<figure class="measured" id="figure-{figure.name}"><strong>{escape(figure.title)}</strong>'
        f'<div class="legend">{legend}</div><div class="panels">{"".join(draw_figure(figure))}</div>'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )
