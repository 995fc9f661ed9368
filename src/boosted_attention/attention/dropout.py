"""Dropout whose masks are functions of a key and a row: cheap to draw, and drawn again where they are needed again.

    y_i = x_i / (1 - p) with probability 1 - p,  else 0

A mask is never stored: the backward pass draws it anew from its key. Numbers come from one generator per row of the
batch and tile of a row, so that a row's mask does not depend on the other rows, on micro-batches or on threads. Each
64-bit number decides four elements by 16 bits, so that p is exact to 2^-17.

A device with a dropout of its own (``has_own_dropout``) uses that instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.compat import inside_transform

TILE_ELEMENTS = 2**17  # elements of a row that are dropped at a time, a constant of the format
LEVELS = 2**16  # values of the number that decides an element
MIXERS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # odd numbers whose bits look random


# A tensor, which compiled code reads anew in every call; on the CPU also where a layer is first made without storage.
_first_row = torch.zeros(1, dtype=torch.int64, device="cpu")


@contextmanager
def rows_from(first_row: int) -> Iterator[None]:
    """Draw the masks inside for rows that are a part of a larger batch.

    From the same random state every part of a batch, computed in micro-batches or processes, then gets the masks that
    the whole batch would have got.

    Args:
        first_row: place in the whole batch of the first row that is computed inside.
    """
    before = int(_first_row)
    _first_row.fill_(first_row)
    try:
        yield
    finally:
        _first_row.fill_(before)


def seed_from(*parts: object) -> int:
    """Return a seed that follows from some values: a hash, so that near values give unrelated seeds."""
    digest = hashlib.sha256(" ".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:7], "big")


def has_own_dropout(device: torch.device) -> bool:
    """Return whether a device draws masks inside its kernels, that of scaled dot-product attention among them."""
    return device.type == "cuda"


def new_key() -> Tensor:
    """Draw the key of one mask from torch's random state: a number, and the place of the first row, (2,)."""
    return torch.cat([torch.randint(2**62, (1,)), _first_row])


def mixed(number: int, row: int, tile: int) -> int:
    """Return a seed in which every bit of the three numbers matters (the finaliser of SplitMix64).

    Reference: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    """
    z = (number + row * MIXERS[0] + tile * MIXERS[1]) % 2**64
    z = (z ^ (z >> 30)) * MIXERS[1] % 2**64
    z = (z ^ (z >> 27)) * MIXERS[2] % 2**64
    return (z ^ (z >> 31)) % 2**32  # as much as the generator takes


class MaskSource:
    """All masks of one key.

    Args:
        key: what ``new_key`` returned.
        dropout: probability of an element to be dropped.
    """

    def __init__(self, key: Tensor, dropout: float):
        self.number, self.first_row = key.tolist()
        self.threshold = min(round((1 - dropout) * LEVELS), LEVELS - 1) - LEVELS // 2  # of numbers from -2^15 on
        self.generator = torch.Generator()

    def draw(self, row: int, n_rows: int, tile: int, count: int) -> Tensor:
        """Return the masks of a tile in several rows, 1 = kept: (n_rows, count), int16.

        Args:
            row: first row.
            n_rows: number of rows.
            tile: place of the tile in its rows.
            count: elements of the tile in one row.
        """
        numbers = torch.empty(n_rows, -(-count // 4), dtype=torch.int64)
        for i in range(n_rows):
            self.generator.manual_seed(mixed(self.number, self.first_row + row + i, tile))
            numbers[i].random_(-(2**63), None, generator=self.generator)
        return numbers.view(torch.int16)[:, :count].lt_(self.threshold)


@torch.library.custom_op("boosted_attention::drop", mutates_args=())
def drop(x: Tensor, key: Tensor, dropout: float) -> Tensor:
    """Return x with some elements dropped and the others divided by 1 - p; rows are the first dimension.

    Args:
        x: tensor with at least two dimensions.
        key: what ``new_key`` returned.
        dropout: probability of an element to be dropped.
    """
    masks, y = MaskSource(key, dropout), torch.empty_like(x, memory_format=torch.contiguous_format)
    for row, (read, written) in enumerate(zip(x.flatten(1), y.flatten(1), strict=True)):
        parts = zip(read.split(TILE_ELEMENTS), written.split(TILE_ELEMENTS), strict=True)
        for tile, (part, out) in enumerate(parts):
            kept = masks.draw(row, 1, tile, part.numel())[0].to(x.device)
            torch.mul(part, kept, out=out).mul_(1 / (1 - dropout))
    return y


@drop.register_fake
def _(x: Tensor, key: Tensor, dropout: float) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _remember(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
    _, key, ctx.dropout = inputs  # type: ignore[attr-defined]
    ctx.save_for_backward(key)


def _drop_gradient(ctx: torch.autograd.function.FunctionCtx, upstream: Tensor) -> tuple[Tensor, None, None]:
    (key,) = ctx.saved_tensors  # type: ignore[attr-defined]
    return drop(upstream, key, ctx.dropout), None, None  # type: ignore[attr-defined]


drop.register_autograd(_drop_gradient, setup_context=_remember)


class Dropout(nn.Module):
    """Dropout of single elements in training, (B, ...) -> (B, ...); the identity in evaluation.

    Args:
        p: probability of an element to be dropped.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if self.p == 0.0 or not self.training:
            return x
        if has_own_dropout(x.device) or inside_transform():
            return functional.dropout(x, self.p)
        return drop(x, new_key(), self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"
