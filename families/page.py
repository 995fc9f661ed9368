"""docs/families.md from results.json."""

from __future__ import annotations

from collections import Counter
from textwrap import wrap
from typing import Any

KINDS = ("full", "low-rank", "shared")
MEANING = """
Works means: logits at the start are those of the frozen base, bit for bit; with corrections changed as if trained,
decoding with a cache equals reading at once, to rounding, and the future stays hidden; saved and loaded by the Auto
classes it is the same model; its own class loads the base from that folder; `unboost` gives the original back. Kinds of
corrections are full ones, low-rank ones (`rank=2`), and low-rank ones that share keys and values (`kv="shared"`).
Layers without attention of a known form, as hybrids have, are left alone.
"""


def page(held: dict[str, Any]) -> str:
    """Return the page as Markdown.

    Args:
        held: what results.json holds.
    """
    families: dict[str, Any] = held["families"]
    counts = Counter(found["status"] for found in families.values())
    versions = ", ".join(f"{name} {number}" for name, number in held["versions"].items())
    whole = sum(all(kind["status"] == "works" for kind in f.get("kinds", {"": f}).values()) for f in families.values())
    summary = (
        f"`boost` was tried on a tiny model of random weights of every causal family that transformers lists "
        f"({versions}). Of {len(families)}, **{counts['works']} work**, {counts['refused']} are refused in one line "
        f"and stay as they were, {counts['broken']} are accepted and broken, and of {counts['could not be built']} no "
        f"tiny model could be built. {whole} work with all three kinds of corrections."
    )
    lines = [
        "# Families",
        "",
        "<!-- written by python -m families -->",
        "",
        *wrap(summary, 120),
        "",
        *wrap(MEANING.strip(), 120),
    ]
    lines += [
        "",
        "## Works",
        "",
        "| family | class | layers boosted | full | low-rank | shared |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in families.items():
        if found["status"] == "works":
            cells = [found["kinds"][kind]["status"] for kind in KINDS]
            lines.append(f"| {name} | {found['model']} | {found['layers']} | {' | '.join(cells)} |")
    partly = [
        (name, kind, f["kinds"][kind]["why"])
        for name, f in families.items()
        if f["status"] == "works"
        for kind in KINDS
        if f["kinds"][kind]["status"] == "refused"
    ]
    if partly:
        lines += ["", "Kinds of corrections that are refused for these:", ""]
        lines += [f"- {name}, {kind}: {cell(why)}" for name, kind, why in partly]
    for status, title in (("refused", "Refused"), ("broken", "Broken"), ("could not be built", "Could not be built")):
        chosen = {name: found for name, found in families.items() if found["status"] == status}
        if chosen:
            lines += ["", f"## {title}", "", "| family | why |", "|---|---|"]
            lines += [f"| {name} | {cell(reason(found, status))} |" for name, found in chosen.items()]
    return "\n".join(lines) + "\n"


def reason(found: dict[str, Any], status: str) -> str:
    """Return why a family has its status, of the first kind of corrections that has it."""
    if "kinds" not in found:
        return found["why"]
    return next(kind["why"] for kind in found["kinds"].values() if kind["status"] == status)


def cell(text: str) -> str:
    """Return a text that a table can hold."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
