"""Precision of what is computed inside a kernel."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Switch autocast off, where the device has it."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def linear_dtype(t: Tensor) -> torch.dtype:
    """Return the dtype of what a linear layer makes of t: autocast's, where that is on."""
    kind = t.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on and t.dtype != torch.float64 else t.dtype
