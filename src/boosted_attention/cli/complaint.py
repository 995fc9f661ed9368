"""Complaints of tyro, the parser of options, as one line.

tyro prints its errors as a box and exits; there is no public way to get them as data (its ``_errors`` module is private
and may change with every release). A box has a title, sections between rules, and last a hint at the help text.
"""

from __future__ import annotations

import re

FRAME = " │|"
RULE = re.compile(r"[─\-+╭╮╰╯├┤ ]*")
SUGGESTIONS = "Perhaps you meant:"


def one_line(box: str) -> str:
    """Return what a boxed complaint says: its first section, and the option it would have suggested.

    Args:
        box: what tyro printed; text of any other shape is returned whole, on one line.
    """
    lines = [line.strip(FRAME) for line in box.splitlines()]
    sections: list[list[str]] = [[]]
    for line in lines:
        if RULE.fullmatch(line) or line.startswith(("╭", "+")):  # a rule, or the title in the upper edge
            sections.append([])
        else:
            sections[-1].append(line)
    filled = [section for section in sections if section]
    if not filled:
        return "the command line could not be understood"
    titled = bool(lines) and lines[0].startswith(("╭", "+"))
    said = filled[0] if titled or len(filled) == 1 else filled[1]  # without an upper edge, the title is a section
    message = " ".join(line for line in said if line)
    if SUGGESTIONS in lines[:-1]:
        suggested = lines[lines.index(SUGGESTIONS) + 1].split()[0].rstrip(",")
        message += f"; did you mean {suggested}?"
    return message
