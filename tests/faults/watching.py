"""A watch on what must not happen: bytes of a file that are unpickled, and sockets that are opened."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import _weights_only_unpickler

PLACES = (
    (pickle, "load"),
    (pickle, "loads"),
    (pickle, "Unpickler"),
    (torch, "load"),
    (_weights_only_unpickler, "Unpickler"),
    (_weights_only_unpickler, "load"),
    (socket.socket, "connect"),
    (socket.socket, "bind"),
)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Collect every call of a loader of pickles, torch's weights-only one included, and every use of a socket."""
    seen: list[str] = []

    def noting(label: str, original: Any) -> Any:
        if isinstance(original, type):

            class Noted(original):
                def __init__(self, *args: Any, **options: Any):
                    seen.append(f"{label} was made")
                    super().__init__(*args, **options)

            return Noted

        def call(*args: Any, **options: Any) -> Any:
            seen.append(f"{label} was called")
            return original(*args, **options)

        return call

    with ExitStack() as held:
        for owner, name in PLACES:
            label = f"{getattr(owner, '__name__', owner)}.{name}"
            held.enter_context(mock.patch.object(owner, name, noting(label, getattr(owner, name))))
        yield seen
