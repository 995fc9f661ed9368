"""The one hook: transformers' Auto classes know boosted models once this package and transformers are imported.

The order does not matter. AutoConfig looks a model_type up in one table. Where that table exists it is extended at
once; otherwise a finder in ``sys.meta_path`` waits for the one module that makes it, extends it when that module has
run, and leaves. The classes of a boosted family are made when its model_type, such as "boosted-llama", is first looked
up: nothing is imported before.
"""

from __future__ import annotations

import importlib
import sys
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
    """A finder that leaves every import alone, save that the table is extended once its module has run."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != TABLE:
            return None
        from importlib.machinery import PathFinder

        spec: Any = PathFinder.find_spec(name, path, target)
        if spec is None:
            return None
        run = spec.loader.exec_module

        def run_and_extend(module: Any) -> None:
            run(module)
            extend(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)  # type: ignore[arg-type]

        spec.loader.exec_module = run_and_extend
        return spec


def watch() -> None:
    """Extend the table now, or when it is made."""
    made = sys.modules.get(TABLE)
    if made is not None:
        extend(made)
    else:
        sys.meta_path.insert(0, Watcher())  # type: ignore[arg-type]
