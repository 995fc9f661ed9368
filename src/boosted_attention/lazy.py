"""Names of a package that are imported when they are first used, so that importing the package costs nothing.

A package states its names once, as imports below ``if TYPE_CHECKING:``, where type checkers see them; this module reads
the same lines. Names that the caller finds by itself, as those of plug-ins, are ``Any`` to type checkers. PEP 562
describes the mechanism.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, found: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose names stand below ``if TYPE_CHECKING:``.

    Args:
        package: the package's ``__name__``.
        found: further names, each with its module.
    """
    module = sys.modules[package]
    spec: Any = module.__spec__
    places = {**stated_names(spec.loader.get_source(package)), **(found or {})}

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(places[name]), name)
        setattr(module, name, found)
        return found

    return get, lambda: sorted({*vars(module), *places}), sorted(places)


def stated_names(source: str) -> dict[str, str]:
    """Return the names imported below ``if TYPE_CHECKING:``, each with its module."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                assert isinstance(statement, ast.ImportFrom), ast.unparse(statement)
                assert statement.module, ast.unparse(statement)
                found |= {name.asname or name.name: statement.module for name in statement.names}
    return found
