"""Weights as they enter: no value that is infinite or NaN."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from boosted_attention.storage.documents import DamagedError


def require_finite(tensors: Mapping[str, Tensor], where: str) -> None:
    """Raise DamagedError, which names the tensor, unless every value is finite.

    Args:
        tensors: weights by name; integers are always finite.
        where: folder or file they come from, for the message.
    """
    for name, t in tensors.items():
        if t.is_floating_point() and not t.is_meta and not is_finite(t):
            count = int((~t.float().isfinite()).sum())
            raise DamagedError(f"{where}: {count} of the {t.numel()} values of {name} are infinite or NaN")


def is_finite(t: Tensor) -> bool:
    """Say whether all values are finite: their sum shows it without a copy, unless it overflows."""
    if t.element_size() == 1:  # float8 cannot be summed
        t = t.float()
    return bool(t.sum().isfinite()) or bool(t.isfinite().all())
