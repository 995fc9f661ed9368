"""Generation, with or without a cache: both give the same tokens.

The context is a window that starts at the beginning and, whenever it reaches ``max_len``, drops its older half. Its
start depends on the number of tokens alone, so that decoding with a cache and without sees the same context; the cache
is rebuilt at each drop, once in max_len / 2 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.attention.cache import KVCache
from boosted_attention.model.tokens import require_tokens
from boosted_attention.validation import is_count, is_number, is_seed, require

ONE_STREAM = 2  # rows up to which a linear map waits for its weight alone
FEW_INPUTS = 256  # of a linear map that more rows too read faster by columns
COPY_PAYS, COPY_PAYS_LATER = 8, 24  # applications that make up for copying weights: to as few rows, and to more


class CachedModel(Protocol):
    """A language model that can decode through a ``KVCache``."""

    training: bool

    @property
    def config(self) -> Any:
        """The configuration, with ``vocab_size`` and ``max_len``."""
        ...

    @property
    def projection(self) -> Tensor:
        """The vocabulary projection (V, D)."""
        ...

    def hidden(self, ids: Tensor, attention_mask: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        """Return what the projection is applied to, (B, T) -> (B, T, D)."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """Return all modules."""
        ...

    def train(self, mode: bool = True) -> Any:
        """Switch between training and evaluation."""
        ...

    def eval(self) -> Any:
        """Switch to evaluation."""
        ...


COLDEST = 1e-44  # temperature; less is zero in float32


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The choice of the next token; ``LanguageModel.generate`` documents the options."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        require(
            is_number(self.temperature) and (self.temperature == 0 or self.temperature >= COLDEST),
            f"temperature={self.temperature!r} must be 0 (the likeliest token), or at least {COLDEST}",
        )
        require(self.top_k is None or is_count(self.top_k), f"top_k={self.top_k!r} must be an integer of at least 1")
        require(
            self.top_p is None or (is_number(self.top_p) and 0 < self.top_p <= 1),
            f"top_p={self.top_p!r} must lie in (0, 1]",
        )
        require(self.seed is None or is_seed(self.seed), f"seed={self.seed!r} must lie in [0, 2**63)")

    def generator(self, device: torch.device) -> torch.Generator | None:
        """Return a generator with the seed, or None for torch's own."""
        return None if self.seed is None else torch.Generator(device).manual_seed(self.seed)

    def choose(self, logits: Tensor, generator: torch.Generator | None) -> Tensor:
        """Choose the next token of each row, (B, V) -> (B,)."""
        if self.temperature == 0:
            return logits.argmax(dim=-1)
        logits, index = logits.to(torch.promote_types(logits.dtype, torch.float32)), None
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            logits, index = logits.topk(self.top_k, dim=-1)  # (B, K), the likeliest first
        elif self.top_p is not None:
            logits, index = logits.sort(dim=-1, descending=True)
        # Without the largest logit, division by a tiny temperature cannot overflow.
        p = ((logits - logits.amax(dim=-1, keepdim=True)) / self.temperature).softmax(dim=-1)
        if self.top_p is not None:
            p = p.masked_fill(p.cumsum(dim=-1) - p >= self.top_p, 0.0)  # the likeliest token always stays
        drawn = torch.multinomial(p, 1, generator=generator)  # of numbers that need not add up to 1
        return (drawn if index is None else index.gather(1, drawn))[:, 0]


def window_start(length: int, max_len: int) -> int:
    """Return where the context of a sequence of ``length`` tokens starts: at a multiple of half of ``max_len``."""
    half = max(1, max_len // 2)
    return 0 if length <= max_len else half * -(-(length - max_len) // half)


def by_columns(weight: Tensor, n_rows: int) -> Tensor:
    """Return the weight (out, in) of a linear map as it is read fastest when the map is applied to few rows.

    A CPU then waits for the weight to arrive from memory. Stored by columns it arrives in ``in`` streams of ``out``
    numbers instead of ``out`` streams of ``in``: with 256 inputs and one row that takes 0.6 of the time at 768 outputs,
    and 0.4 at 16,384; with 4 to 16 rows 0.7 to 0.9, and from 512 inputs on no less than by rows.

    Args:
        weight: the weight.
        n_rows: number of rows that the map is applied to.
    """
    n_out, n_in = weight.shape
    faster = n_out > n_in and (n_rows <= ONE_STREAM or n_in <= FEW_INPUTS)
    return weight.t().contiguous().t() if faster else weight


@contextmanager
def stored_for_few_rows(model: CachedModel, n_calls: int, n_rows: int) -> Iterator[Tensor]:
    """Store the weights of a model's linear maps as ``by_columns`` says, where that pays, for the length of a block.

    Args:
        model: the model.
        n_calls: number of times that it is called inside.
        n_rows: number of rows that it is called with.

    Yields:
        The vocabulary projection (V, D), a copy where it is the embedding too, which reads rows.
    """
    pays = n_calls >= (COPY_PAYS if n_rows <= ONE_STREAM else COPY_PAYS_LATER)
    if not pays or model.projection.device.type != "cpu":
        yield model.projection
        return
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    before = [weight.data for weight in weights]
    try:
        for weight in weights:
            weight.data = by_columns(weight.data, n_rows)
        yield by_columns(model.projection, n_rows)
    finally:
        for weight, data in zip(weights, before, strict=True):
            weight.data = data


@torch.no_grad()
def decode(
    model: CachedModel,
    ids: Tensor,
    max_new_tokens: int,
    attention_mask: Tensor | None,
    sampling: Sampling,
    stop: int | None,
    use_cache: bool,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Continue ids (B, T) token by token; ``LanguageModel.generate`` documents the arguments.

    Yields:
        The next token of each row (B,), and the sequences so far (B, T + n). The model is in evaluation mode, and its
        weights may be stored otherwise, until the iterator is at its end or closed.
    """
    config = model.config
    require(ids.ndim == 2, f"ids has shape {tuple(ids.shape)}; expected (batch, length)")
    require_tokens(ids, config.vocab_size)
    require(
        isinstance(max_new_tokens, int) and max_new_tokens >= 0, f"max_new_tokens={max_new_tokens} must not be negative"
    )
    require(
        stop is None or 0 <= stop < config.vocab_size, f"stop={stop} is outside the vocabulary of {config.vocab_size}"
    )
    mask = attention_mask
    if mask is not None:
        require(
            mask.shape == ids.shape,
            f"attention_mask has shape {tuple(mask.shape)}; expected that of ids, {tuple(ids.shape)}",
        )
        require(
            bool(mask[:, -1].all()), "attention_mask: pad prompts on the left, so that every row ends in a real token"
        )
        pads = int(mask.bool().int().argmax(dim=1).min())  # columns that no row needs
    else:
        pads = 0
    length, most = ids.shape[1], ids.shape[1] + max_new_tokens
    written = ids.new_zeros(ids.shape[0], most, dtype=torch.int64)  # (B, T + n), filled up to ``length``
    written[:, :length] = ids
    if mask is not None:
        mask = torch.cat([mask, mask.new_ones(ids.shape[0], max_new_tokens)], dim=1)  # (B, T + n)
    was_training = model.training
    model.eval()
    generator, cache, cached_from, filled = sampling.generator(ids.device), None, -1, 0
    done = torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)
    try:
        with stored_for_few_rows(model, max_new_tokens, len(ids)) as projection:
            while length < most and not (stop is not None and bool(done.all())):
                start = pads + window_start(length - pads, config.max_len)
                if use_cache and start != cached_from:
                    needed = min(config.max_len, most - 1 - start)  # the last token is never read
                    cache, cached_from, filled = KVCache(max_len=needed), start, start
                first = filled if use_cache else start
                seen = None if mask is None else mask[:, start:length]
                with torch.inference_mode():  # what comes out of it may not take part in training: only its numbers do
                    hidden = model.hidden(written[:, first:length], seen, cache)
                    token = sampling.choose(functional.linear(hidden[:, -1], projection), generator)  # (B,)
                    if stop is not None:
                        token = torch.where(done, stop, token)
                        done |= token == stop
                    written[:, length] = token
                filled, length = length, length + 1
                yield written[:, length - 1], written[:, :length]
    finally:
        model.train(was_training)


def generate(
    model: CachedModel,
    ids: Tensor,
    max_new_tokens: int,
    attention_mask: Tensor | None,
    sampling: Sampling,
    stop: int | None,
    use_cache: bool,
    stream: Callable[[Tensor], None] | None,
) -> Tensor:
    """Continue ids (B, T) to the end; ``LanguageModel.generate`` documents the arguments."""
    written = ids
    for token, so_far in decode(model, ids, max_new_tokens, attention_mask, sampling, stop, use_cache):
        written = so_far
        if stream is not None:
            stream(token)
    return written
