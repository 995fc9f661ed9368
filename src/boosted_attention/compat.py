"""Private parts of torch that the package needs, each behind a named function. Tried on torch 2.13.0.

A new version of torch is tried here first: everything else uses public names only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack

COMPILER = "torch._dynamo"  # the module that an optimizer's first step imports

Function = TypeVar("Function", bound=Callable[..., Any])


def inside_transform() -> bool:
    """Return whether a torch.func transform (vmap, grad, jvp) is tracing this call."""
    if torch.compiler.is_compiling():
        return False
    return peek_interpreter_stack() is not None


def leave_uncompiled(function: Function) -> Function:
    """Keep a function out of torch.compile, as ``torch.compiler.disable`` does, without importing the compiler now."""
    from torch._compile import _disable_dynamo

    return _disable_dynamo(function)  # type: ignore[return-value]


def fake_mode() -> AbstractContextManager[Any]:
    """Return a context in which new tensors have shapes, dtypes and devices but no storage; real ones may take part."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def has_values(t: Tensor) -> bool:
    """Return whether a program may branch on a tensor's values: not on the meta device, nor in ``fake_mode``."""
    return not (t.is_meta or hasattr(t, "fake_mode"))


def storage_key(t: Tensor) -> int:
    """Return a number that tensors with the same storage share, also tensors without data, while the storage lives."""
    return t.untyped_storage()._cdata


def softmax_gradient(upstream: Tensor, p: Tensor) -> Tensor:
    """Return p (upstream - sum(p upstream)), the gradient of the scores of p = softmax(scores), in one pass."""
    return torch.ops.aten._softmax_backward_data(upstream, p, -1, p.dtype)
