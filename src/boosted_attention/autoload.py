"""The one hook: transformers' Auto classes know boosted models once this package and transformers are imported.

The order does not matter. AutoConfig looks a model_type up in one table. Where that table exists it is extended at
once; otherwise a finder in ``sys.meta_path`` waits for the one module that makes it, extends it when that module has
run, and leaves. The classes of a boosted family are made when its model_type, such as "boosted-llama", is first looked
up: nothing is imported before.

The same hook serves peft's tables (``boosted_attention.pretrained.adapters``), from the first boosted model on.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

TABLE = "transformers.models.auto.configuration_auto"
PREFIX = "boosted-"


class WithBoosted(dict):
    """Configuration classes by model_type, those of boosted families among them, which are made when looked up.

    Args:
        held: classes that are registered already.
        known: the whole table, which knows the families themselves.
    """

    def __init__(self, held: dict[str, Any], known: Any):
        super().__init__(held)
        self.known = known

    def __contains__(self, key: object) -> bool:
        if super().__contains__(key):
            return True
        family = key[len(PREFIX) :] if isinstance(key, str) and key.startswith(PREFIX) else ""
        return family == "attention" or (bool(family) and family in self.known)  # boosted-attention: models of ours

    def __missing__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        importlib.import_module("boosted_attention.pretrained.native")  # registers models of ours
        if not super().__contains__(key):
            importlib.import_module("boosted_attention.pretrained.auto").register(key[len(PREFIX) :])
        return super().__getitem__(key)


def extend(module: Any) -> None:
    """Make the table of transformers know boosted families."""
    table = module.CONFIG_MAPPING
    held = getattr(table, "_extra_content", None)  # what AutoConfig.register fills
    if isinstance(held, dict) and not isinstance(held, WithBoosted):
        table._extra_content = WithBoosted(held, table)


class Watcher:
    """A finder that leaves every import alone, save that something is done once one module has run.

    Args:
        name: the module that is waited for.
        act: what is done with it.
    """

    def __init__(self, name: str, act: Callable[[Any], None]):
        self.name, self.act = name, act

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        from importlib.machinery import PathFinder

        spec: Any = PathFinder.find_spec(name, path, target)
        if spec is None:
            return None
        run = spec.loader.exec_module

        def run_and_act(module: Any) -> None:
            run(module)
            self.act(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)  # type: ignore[arg-type]

        spec.loader.exec_module = run_and_act
        return spec


def once_imported(name: str, act: Callable[[Any], None]) -> None:
    """Do something with a module: now, or when it is imported.

    Args:
        name: name of the module.
        act: what to do with it.
    """
    made = sys.modules.get(name)
    if made is not None:
        act(made)
    else:
        sys.meta_path.insert(0, Watcher(name, act))  # type: ignore[arg-type]


def watch() -> None:
    """Extend the table of transformers now, or when it is made."""
    once_imported(TABLE, extend)
