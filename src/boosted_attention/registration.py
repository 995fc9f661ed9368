"""Modules that register what they define, found by the folder they are in, so that a new one needs no other edit."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import ModuleType


def import_folder(package: str) -> list[ModuleType]:
    """Import every module below a package, in alphabetical order; names that begin with an underscore are left out.

    Args:
        package: the package's ``__name__``.
    """
    found = pkgutil.walk_packages(sys.modules[package].__path__, f"{package}.")
    names = sorted(module.name for module in found if not module.ispkg)
    return [importlib.import_module(name) for name in names if not name.rpartition(".")[2].startswith("_")]
