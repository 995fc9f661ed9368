"""Text for terminals: names and generated text cannot move the cursor, change colours or hide what was said."""

from __future__ import annotations

import re
import sys
from typing import TextIO

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escaped(text: str) -> str:
    """Return a text whose control characters, other than newlines and tabs, are shown as \\x1b or \\u202e."""
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def for_terminal(text: str, stream: TextIO | None = None) -> str:
    """Return a text as it is for a file or pipe, and escaped for a terminal.

    Args:
        text: what is to be written.
        stream: where to; the standard output by default.
    """
    return escaped(text) if (stream or sys.stdout).isatty() else text
