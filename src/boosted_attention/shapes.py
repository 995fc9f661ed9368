"""Modules without values: what has a size but no storage can be counted at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _WithoutInitialisation(TorchFunctionMode):
    """Skip ``torch.nn.init``: on the meta device it would load the compiler, two seconds, to fill nothing."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Build modules on the meta device, with shapes and dtypes but neither storage nor initial values."""
    with torch.device("meta"), _WithoutInitialisation():
        yield
