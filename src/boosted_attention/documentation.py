"""Texts of options, read from where they stand: strings below dataclass fields, and ``Args:`` lists of docstrings."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

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
    """Return what stands at each field of a dataclass, on one line: the string below it, or the comment behind it.

    Fields of base classes are included; the result is empty where the source is not at hand.
    """
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        source = source_of(base)
        if source is not None:
            texts |= {**comments_behind(source), **strings_below(source)}
    return texts


def source_of(kind: type) -> str | None:
    """Return the source of a class, not indented; None where it is not at hand."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    # inspect.getsource would look at every module there is, a fifth of a second beside torch.
    names = tuple(name for name in kind.__qualname__.split(".") if name != "<locals>")
    return _class_sources(file).get(names) if file else None


@functools.cache
def _class_sources(file: str) -> dict[tuple[str, ...], str]:
    """Return the source of every class of a file by the names that lead to it; none where there is no file."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError:
        return {}
    found: dict[tuple[str, ...], str] = {}

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                inner = (*names, child.name)
                if isinstance(child, ast.ClassDef):
                    lines = text.splitlines()[child.lineno - 1 : child.end_lineno]
                    found[inner] = textwrap.dedent("\n".join(lines))
                visit(child, inner)
            else:
                visit(child, names)

    visit(ast.parse(text), ())
    return found


def strings_below(source: str) -> dict[str, str]:
    """Return the string below each field of a class."""
    (defined,) = ast.parse(source).body
    assert isinstance(defined, ast.ClassDef)
    return {
        field.target.id: " ".join(str(ast.literal_eval(below.value)).split())
        for field, below in itertools.pairwise(defined.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr)
    }


def comments_behind(source: str) -> dict[str, str]:
    """Return the comment behind each field of a class."""
    return dict(re.findall(r"^    (\w+): .*?  # (.+)$", source, flags=re.MULTILINE))


T = TypeVar("T", bound=type)


def documented(kind: T) -> T:
    """Give a dataclass an ``Args:`` list in its docstring, made of what stands at its fields.

    Where the source is not at hand, as in a frozen program, the docstring stays as it is.

    Args:
        kind: the dataclass; each field that can be passed has a string below it or a comment behind it.
    """
    return documented_with()(kind)


def documented_with(**parts: str) -> Callable[[T], T]:
    """Return what ``documented`` does, for texts with parts that are stated elsewhere, such as the names in a table.

    Args:
        parts: texts by name; each takes the place of its {name} at the fields.
    """

    def give_arguments(kind: T) -> T:
        if source_of(kind) is None:
            return kind
        texts = field_texts(kind)
        lines = []
        for f in fields(kind):
            if f.init:
                assert f.name in texts, f"{kind.__qualname__}.{f.name} needs a string below it or a comment behind it"
                lines.append(f"{f.name}: {texts[f.name]}")
        for name, part in parts.items():
            assert any(f"{{{name}}}" in line for line in lines), f"no text of {kind.__qualname__} has {{{name}}}"
            lines = [line.replace(f"{{{name}}}", part) for line in lines]
        arguments = "\n".join(map(wrapped, lines))
        kind.__doc__ = inspect.cleandoc(kind.__doc__ or "") + f"\n\nArgs:\n{arguments}\n"
        return kind

    return give_arguments


def wrapped(entry: str) -> str:
    """Return an entry of an ``Args:`` list, broken into lines."""
    return textwrap.fill(entry, 112, initial_indent=" " * 4, subsequent_indent=" " * 8)


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
        lines.append(wrapped(f"{option.name}: {option.text}{default}"))
    return inspect.cleandoc(docstring or "") + "\n\nArgs:\n" + "\n".join(lines) + "\n"
