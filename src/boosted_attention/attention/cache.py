"""Exact incremental decoding.

Causality makes everything a round writes at a past position final: its keys, its values, and so the residual the next
round reads there. A layer therefore keeps one K/V pair per round (a single one when rounds share it), and the forms of
twicing one more tensor; a round that looks a few positions back keeps those few. ``KVCache`` holds a ``LayerCache`` per
layer; a slot is keyed by (name, round), such as ("k", 0).
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

from boosted_attention.validation import is_count, require

Slot = tuple[str, int]  # name and round


class LayerCache:
    """The slots of one layer, each (B, H, S, d): growing, or preallocated when ``max_len`` is given.

    ``append`` returns the whole slot including the new positions, ``recent`` a slot that holds the last few only, and
    ``advance`` makes the new ones count. A call that fails in between leaves the cache as it was.

    Args:
        max_len: number of positions to preallocate; None grows as needed.
    """

    def __init__(self, max_len: int | None = None):
        self.max_len = max_len
        self.length = 0
        self.owner: Hashable = None  # the layer that fills it, and its disabled rounds
        self.slots: dict[Slot, Tensor] = {}
        self._next: dict[Slot, Tensor] = {}  # what slots of a few positions hold once this call counts

    @property
    def batch_size(self) -> int | None:
        """Batch size, or None while the cache is empty."""
        return next(iter(self.slots.values())).shape[0] if self.length else None

    def append(self, slot: Slot, new: Tensor) -> Tensor:
        """Write (B, H, T, d) behind the ``length`` positions that count and return all, (B, H, length + T, d)."""
        end = self.length + new.shape[2]
        held = self._held(slot, new)
        if self.max_len is None:
            whole = new if held is None else torch.cat([held[:, :, : self.length], new], dim=2)
        else:
            whole = new.new_empty(*new.shape[:2], self.max_len, new.shape[3]) if held is None else held
            whole.narrow(2, self.length, new.shape[2]).copy_(new)  # a third of the time of an indexed assignment
        self.slots[slot] = whole
        return whole.narrow(2, 0, end)

    def past(self, slot: Slot) -> Tensor | None:
        """Return the positions of a slot that count, (B, H, length, d); None while the cache is empty."""
        return self.slots[slot][:, :, : self.length] if self.length else None

    def recent(self, slot: Slot, new: Tensor, count: int) -> Tensor:
        """Return (B, H, T, d) behind the last ``count`` positions before it, or as many as there are; keep no more."""
        held = self._held(slot, new)
        whole = new if held is None else torch.cat([held, new], dim=2)
        self._next[slot] = whole[:, :, -count:].clone()  # a view would keep the rest alive
        return whole

    def _held(self, slot: Slot, new: Tensor) -> Tensor | None:
        """Return what a slot holds, None at the start; raise ValueError if ``new`` cannot continue it."""
        if not self.length:
            return None
        held = self.slots.get(slot)
        if held is None:
            raise ValueError(f"cache has slots {sorted(self.slots)}, no {slot}: it was filled by another layer")
        if kind(held) != kind(new):
            raise ValueError(f"cache slot {slot} holds {describe(held)}, which {describe(new)} cannot continue")
        return held

    def admit(self, owner: Hashable, batch: int, n_new: int) -> None:
        """Raise ValueError, before anything is written, if the call does not fit."""
        if self.length and self.owner != owner:
            raise ValueError(
                "cache: these slots were filled by another layer, or with other rounds disabled; give each layer a "
                "layer_index of its own, and switch rounds before the first token"
            )
        if self.length and self.batch_size != batch:
            raise ValueError(f"cache holds a batch of {self.batch_size}, the input is a batch of {batch}")
        if self.max_len is not None:
            if self.length + n_new > self.max_len:
                raise ValueError(
                    f"cache has max_len={self.max_len} and holds {self.length} positions; {n_new} more do not fit"
                )
            if torch.is_grad_enabled():
                raise ValueError(
                    f"max_len={self.max_len}: a preallocated cache holds no gradient; decode under torch.no_grad() "
                    "or use a growing cache, KVCache()"
                )
        self.owner = owner
        self._next = {}  # of a call that failed

    def advance(self, n_new: int) -> None:
        """Make the ``n_new`` positions of this call count."""
        self.length += n_new
        self.slots |= self._next
        self._next = {}

    def reorder(self, index: Tensor) -> None:
        """Keep the batch rows ``index`` (repeats allowed), as beam search needs."""
        self.slots = {slot: held.index_select(0, index.to(held.device)) for slot, held in self.slots.items()}


def kind(t: Tensor) -> tuple[int, int, int, torch.dtype]:
    """Return everything of a slot but its length."""
    batch, n_heads, _, d = t.shape
    return batch, n_heads, d, t.dtype


def describe(t: Tensor) -> str:
    """Describe a slot in words."""
    batch, n_heads, d, dtype = kind(t)
    return f"batch {batch}, {n_heads} heads of {d}, {dtype}"


class KVCache:
    """Keys and values of a whole model: ``layer(x, is_causal=True, cache=cache)`` uses ``cache.layer(layer_index)``.

    Layers that share a cache need a ``layer_index`` each; a layer that is used twice is given a ``cache.layer(i)`` for
    each use.

    Args:
        max_len: number of positions to preallocate; None grows as needed.
    """

    def __init__(self, max_len: int | None = None):
        require(
            max_len is None or is_count(max_len), f"max_len={max_len} must be an integer of at least 1, or None to grow"
        )
        self.max_len = max_len
        self._layers: dict[int, LayerCache] = {}

    def layer(self, index: int) -> LayerCache:
        """Return the slots of layer ``index``, made on first use."""
        if index not in self._layers:
            self._layers[index] = LayerCache(self.max_len)
        return self._layers[index]

    @property
    def length(self) -> int:
        """Number of positions held."""
        return max((layer.length for layer in self._layers.values()), default=0)

    def reorder(self, index: Tensor) -> None:
        """Keep the batch rows ``index`` in every layer."""
        for layer in self._layers.values():
            layer.reorder(index)
