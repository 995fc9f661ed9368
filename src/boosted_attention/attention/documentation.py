"""Texts of options, read from where they stand: strings below dataclass fields, and ``Args:`` lists of docstrings."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

REQUIRED = inspect.Parameter.empty  # the default of an option that has none


@dataclass(frozen=True)
class Option:
    """One option as help shows it."""

    name: str
    default: Any  # REQUIRED where there is none
    text: str
    kind: Any = Any  # its type

    def __str__(self) -> str:
        shown = self.name if self.default is REQUIRED else f"{self.name}={self.default!r}"
        return f"{shown}: {self.text}"

    def parameter(self, *, keyword: bool) -> inspect.Parameter:
        """Return the option as a parameter of a signature."""
        kind = inspect.Parameter.KEYWORD_ONLY if keyword else inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(self.name, kind, default=self.default, annotation=self.kind)


def field_texts(kind: type) -> dict[str, str]:
    """Return the string below each field of a dataclass, on one line; empty where the source is not at hand."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except OSError:
        return {}
    texts = {}
    assert isinstance(tree.body[0], ast.ClassDef)
    body = tree.body[0].body
    for field, below in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            texts[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return texts


def argument_texts(docstring: str | None) -> dict[str, str]:
    """Return the texts of a docstring's ``Args:`` list by name, each on one line."""
    _, _, section = inspect.cleandoc(docstring or "").partition("\nArgs:\n")
    section = re.split(r"^\S", section, maxsplit=1, flags=re.MULTILINE)[0]  # the next section is not indented
    entries = re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def with_arguments(docstring: str | None, options: Iterable[Option]) -> str:
    """Return a docstring with an ``Args:`` list of the options behind it."""
    lines = []
    for option in options:
        default = "" if option.default is REQUIRED else f" Default: {option.default!r}."
        text = textwrap.fill(
            f"{option.name}: {option.text}{default}", 112, initial_indent=" " * 4, subsequent_indent=" " * 8
        )
        lines.append(text)
    return inspect.cleandoc(docstring or "") + "\n\nArgs:\n" + "\n".join(lines) + "\n"
