"""Names in Markdown: whatever a name contains, it stays text, on its line and visible."""

from __future__ import annotations

import re

SPECIAL = re.compile(r"[\\`*_\[\]<>|~&$#!]")


def printable(text: str) -> str:
    """Return a text on one line, whose control characters and the like are shown as \\x1b or \\u202e."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    return SPECIAL.sub(r"\\\g<0>", printable(text))


def code(text: object) -> str:
    """Return a text as code inside a line, between as many backticks as it needs."""
    shown = printable(str(text))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"
