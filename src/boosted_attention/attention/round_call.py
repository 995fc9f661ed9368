"""What one round of one forward call may use, and what it hands on to rounds that share its projections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional

from boosted_attention.attention.cache import LayerCache
from boosted_attention.attention.kernels import Kernel, Map, dropped
from boosted_attention.attention.masks import Mask, sees_recent
from boosted_attention.attention.rotary import Angles
from boosted_attention.attention.trace import RoundTrace
from boosted_attention.documentation import documented

KeyValue = tuple[Tensor, Tensor]
ValueChange = Callable[[Tensor], Tensor]  # (B, H_kv, T, dv) -> (B, H_kv, T, dv)


class Projected(NamedTuple):
    """What a round asked and read, for the rounds that share it."""

    q: Tensor  # (B, H, T, dh)
    k: Tensor  # (B, H_kv, S, dh)
    v: Tensor  # (B, H_kv, S, dh)


@documented
@dataclass
class RoundCall:
    """What one round of one forward call may use: input, kernel, mask, dropout, angles, cache and trace."""

    index: int  # Index of the round, from 0.
    x: Tensor  # Input of the layer (B, T, D), whatever the round itself looks at.
    kernel: Kernel  # Kernel that computes the attention.
    mask: Mask  # Mask of the scores, broadcast to (B, H, T, S).
    dropout: float  # Dropout probability of the attention weights; 0 outside of training.
    angles: Angles | None = None  # Angles of the positions, with rotary embedding only.
    cache: LayerCache | None = None  # Cache of the layer's past keys and values; None without one.
    trace: RoundTrace | None = None  # Trace that the round writes into; None without one.
    change_values: ValueChange | None = None  # Function applied to new values before they are cached and read.

    def map(self, q: Tensor, k: Tensor, scale: float) -> Map:
        """Return v -> softmax(scale q k^T + mask) v, (B, H, T, dv), with this call's kernel, mask and dropout."""
        return self._run_kernel(q, k, scale)[0]

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        """Return softmax(scale q k^T + mask), (B, H, T, S), in float32 or better, for a learner with ``needs_maps``.

        In training some are dropped, once: wherever the learner's formula has the map, it has the same ones.
        """
        weights = self._run_kernel(q, k, scale)[1]
        assert weights is not None, "a learner that needs maps runs on the explicit kernel"
        return dropped(weights, self.dropout, self.mask.is_causal)

    def _run_kernel(self, q: Tensor, k: Tensor, scale: float) -> tuple[Map, Tensor | None]:
        apply, weights = self.kernel(q, k, self.mask, scale, self.dropout)
        if self.trace is not None:
            assert weights is not None, "a traced call runs on the explicit kernel"
            self.trace.q, self.trace.scale, self.trace.weights = q, scale, weights
        return apply, weights

    def attention(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Apply the map of q and k to v once."""
        return self.map(q, k, scale)(v)

    def remember(self, slot: str, new: Tensor) -> Tensor:
        """Return the past positions of a cache slot with ``new`` behind them; without a cache, ``new`` itself."""
        return new if self.cache is None else self.cache.append((slot, self.index), new)

    def recall(self, slot: str) -> Tensor | None:
        """Return the past positions of a cache slot, (B, H, S, d); None if there are none."""
        return None if self.cache is None else self.cache.past((slot, self.index))

    def recent(self, slot: str, new: Tensor, count: int) -> Tensor:
        """Return ``new`` (B, H, T, d) behind the ``count`` positions before it, zeros where there are none."""
        whole = new if self.cache is None else self.cache.recent((slot, self.index), new, count)
        return functional.pad(whole, (0, 0, count + new.shape[2] - whole.shape[2], 0))  # (B, H, count + T, d)

    def sees_recent(self, count: int) -> Tensor | None:
        """Return which of the last ``count`` positions each one may see, its own first, as ``masks.sees_recent``."""
        length = self.x.shape[1]
        past = 0 if self.cache is None else self.cache.length
        return sees_recent(self.mask, length, past + length, count)

    def note(self, **tensors: Tensor) -> None:
        """Write tensors that only this learner has into the trace."""
        if self.trace is not None:
            self.trace.extra.update(tensors)
