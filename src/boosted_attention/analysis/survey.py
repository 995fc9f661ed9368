"""One pass over sequences for many studies: each reads the traces of a few sequences at a time.

A study keeps sums, so that neither the model's size nor the number of sequences decides the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from boosted_attention.attention.trace import LayerTrace, capture
from boosted_attention.progress import Progress
from boosted_attention.validation import InputError, require

T = TypeVar("T")


class BrokenModelError(InputError):
    """The model computes infinite or NaN values."""


class Study(Protocol):
    """What ``survey`` shows traces to."""

    def add(self, ids: Tensor, traces: Sequence[LayerTrace]) -> None:
        """Take in token ids (B, T) and the trace of each layer."""
        ...

    def result(self) -> Any:
        """What was found in all that was added."""
        ...


class OfRound(Protocol):
    """A finding about one round of one layer."""

    @property
    def layer(self) -> int: ...
    @property
    def round(self) -> int: ...


R = TypeVar("R", bound=OfRound)


def by_layer(findings: Iterable[R], m: int) -> dict[int, R]:
    """Pick the findings about round ``m``, by layer."""
    return {finding.layer: finding for finding in findings if finding.round == m}


def draw_rows(tokens: np.ndarray, length: int, count: int, seed: int = 0) -> Tensor:
    """Draw sequences from anywhere in a text, without overlap and in text order: (n, T + 1).

    Args:
        tokens: the token ids of the text.
        length: T; a sequence has one token more, to be predicted by the last.
        count: sequences to draw; fewer where the text is too short for as many.
        seed: of the draw.
    """
    available = (len(tokens) - 1) // length
    require(
        available >= 1,
        f"the test split has {len(tokens)} tokens; sequences of {length} need at least {length + 1}; choose a smaller "
        "length",
    )
    chosen = np.sort(np.random.default_rng(seed).permutation(available)[:count])
    rows = np.stack([tokens[i * length : (i + 1) * length + 1] for i in chosen])
    return torch.from_numpy(rows.astype(np.int64))


def logits_of(model: nn.Module, ids: Tensor) -> Tensor:
    """Compute logits (B, T, V) of ids (B, T), for models that return them and models that return ``.logits``."""
    out = model(ids)
    return getattr(out, "logits", out)


def token_losses_of(model: nn.Module, rows: Tensor) -> Tensor:
    """Cross-entropy of every predicted token of rows (n, T + 1): (n, T)."""
    logits = logits_of(model, rows[:, :-1]).float()
    return nn.functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")


def losses_by_row(model: nn.Module, rows: Tensor, progress: Progress | None = None) -> Tensor:
    """Compute ``token_losses_of`` one row at a time, which bounds the memory of logits; on the CPU: (n, T)."""
    device, parts = next(model.parameters()).device, []
    for i, row in enumerate(rows):
        parts.append(token_losses_of(model, row[None].to(device)).cpu())
        if progress is not None:
            progress((i + 1) / len(rows))
    return torch.cat(parts)


@torch.no_grad()
def survey(
    model: nn.Module, rows: Tensor, studies: Sequence[Study], *, batch_size: int = 1, progress: Progress | None = None
) -> None:
    """Show every study the traces of a model on some sequences, a batch at a time.

    Args:
        model: any module that contains attention layers of boosted_attention, called with token ids (B, T).
        rows: sequences (n, T + 1); the last token of each is only predicted.
        studies: objects with ``add(ids, traces)``; ask them for their ``result()`` afterwards.
        batch_size: sequences at a time.
        progress: called with the fraction done.
    """
    device = next(model.parameters()).device
    with capture(model) as traces:
        for start in range(0, len(rows), batch_size):
            ids = rows[start : start + batch_size, :-1].to(device)
            model(ids)
            for study in studies:
                study.add(ids, list(traces.values()))
            if progress is not None:
                progress(min(1.0, (start + batch_size) / len(rows)))


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Shares of values in equal bins between two bounds."""

    low: float
    high: float
    share: list[float]

    def centres(self) -> list[float]:
        """The middle of each bin."""
        n = len(self.share)
        size = (self.high - self.low) / n
        return [self.low + (i + 0.5) * size for i in range(n)]


class Histogram:
    """Counts in equal bins between two bounds; values outside go to the nearest bin."""

    def __init__(self, low: float, high: float, bins: int):
        self.low, self.high, self.counts = low, high, np.zeros(bins, dtype=np.int64)

    def add(self, values: Tensor) -> None:
        scaled = (values.cpu().double() - self.low) / (self.high - self.low) * len(self.counts)
        index = scaled.long().clamp(0, len(self.counts) - 1).flatten()
        self.counts += torch.bincount(index, minlength=len(self.counts)).numpy()

    def result(self) -> Distribution:
        share = self.counts / max(1, self.counts.sum())
        return Distribution(low=self.low, high=self.high, share=share.tolist())


class Mean:
    """A running mean of equally shaped tensors, in float64 and on the CPU."""

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.count = 0

    def add(self, values: Tensor) -> None:
        """Take in n observations (n, ...)."""
        summed = values.cpu().double().sum(dim=0)
        self.total = summed if self.total is None else self.total + summed
        self.count += values.shape[0]

    @property
    def value(self) -> Tensor:
        assert self.total is not None, "nothing was added"
        return self.total / self.count


def rounded(value: T, digits: int = 6) -> T:
    """Round every float inside dataclasses, dicts, lists and tuples to significant digits.

    Six digits are more than the sampling supports, and keep stored results small.

    Args:
        value: what is rounded; a new value of the same type is returned.
        digits: significant digits.

    Raises:
        BrokenModelError: a number is infinite or NaN.
    """
    return _rounded(value, digits)


def _rounded(value: Any, digits: int) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _rounded(getattr(value, f.name), digits) for f in fields(value)})
    if isinstance(value, dict):
        return {key: _rounded(v, digits) for key, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v, digits) for v in value]
    if isinstance(value, tuple):
        items = [_rounded(v, digits) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, float):
        if not np.isfinite(value):
            raise BrokenModelError("the analysis met infinite or NaN values: the model's weights are broken")
        return float(f"{value:.{digits}g}")
    return value
