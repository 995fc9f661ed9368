"""Batches as a pure function of (seed, step): resuming needs the step alone, and every model sees the same order.

    rows      non-overlapping rows of T tokens, T-1 predictions each, reshuffled per epoch (the paper)
    windows   T+1 tokens each, so that all T positions predict; their common offset is drawn anew per epoch
    packed    rows of whole documents, as ``packing.py`` makes them once, reshuffled per epoch

An incomplete last batch of an epoch is left out.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from boosted_attention.data.layouts import LAYOUTS
from boosted_attention.data.packing import Batch, PackedRows
from boosted_attention.validation import require, require_choice


class Batches:
    """Training batches of running text: ``batches(step)`` gives ids and targets, (B, T) or (B, T-1).

    Args:
        tokens: the training split.
        layout: a name from LAYOUTS.
        batch_size: rows per step, B.
        length: tokens per row, T.
        seed: decides the order of the rows.
    """

    def __init__(self, tokens: np.ndarray, *, layout: str, batch_size: int, length: int, seed: int):
        require_choice("layout", layout, LAYOUTS)
        require(layout == "windows" or length > 1, "layout='rows': a row of max_len=1 predicts nothing")
        self.tokens, self.layout = tokens, layout
        self.batch_size, self.length, self.seed = batch_size, length, seed
        self.n_rows = len(tokens) // length if layout == "rows" else max(0, (len(tokens) - length) // length)
        self.steps_per_epoch = self.n_rows // batch_size
        need = batch_size * length + (length if layout == "windows" else 0)
        require(
            self.steps_per_epoch > 0,
            f"the training split has {len(tokens)} tokens; one batch of {batch_size} rows of {length} needs {need}: "
            "give more text, or a smaller batch_size= or max_len=",
        )
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def _shuffled(self, epoch: int) -> np.ndarray:
        """Return where each row of the epoch starts."""
        draw = np.random.default_rng([self.seed, epoch])
        offset = int(draw.integers(self.length)) if self.layout == "windows" else 0
        return offset + self.length * draw.permutation(self.n_rows)

    def __call__(self, step: int) -> Batch:
        epoch, i = divmod(step, self.steps_per_epoch)
        starts = self._order(epoch)[i * self.batch_size : (i + 1) * self.batch_size]
        width = self.length + (self.layout == "windows")
        rows = self.tokens[starts[:, None] + np.arange(width)]  # (B, T or T+1)
        rows = torch.from_numpy(rows.astype(np.int64))
        return Batch(rows[:, :-1], rows[:, 1:])


class PackedBatches:
    """Training batches of whole documents: ``batches(step)`` gives ids, targets and documents, each (B, T).

    Args:
        tokens: the training split.
        end_of_text: token behind every document; None for a tokenizer that has none, which is refused.
        batch_size: rows per step, B.
        length: tokens per row, T.
        seed: decides the order of the rows.
    """

    def __init__(self, tokens: np.ndarray, *, end_of_text: int | None, batch_size: int, length: int, seed: int):
        self.rows = PackedRows(tokens, end_of_text=end_of_text, length=length)
        require(
            bool((tokens == end_of_text).any()),
            "pack='documents': the training split has no end of text inside, it is one document",
        )
        self.batch_size, self.seed = batch_size, seed
        self.steps_per_epoch = len(self.rows) // batch_size
        require(
            self.steps_per_epoch > 0,
            f"the documents of the training split fill {len(self.rows)} rows of {length}; one batch has {batch_size}: "
            "give more text, or a smaller batch_size= or max_len=",
        )
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def _shuffled(self, epoch: int) -> np.ndarray:
        """Return the rows in the epoch's order."""
        return np.random.default_rng([self.seed, epoch]).permutation(len(self.rows))

    def __call__(self, step: int) -> Batch:
        epoch, i = divmod(step, self.steps_per_epoch)
        return self.rows(self._order(epoch)[i * self.batch_size : (i + 1) * self.batch_size].tolist())


def batch_hash(ids: Tensor, documents: Tensor | None = None) -> str:
    """Return a short name of a batch, by which two runs can be seen to have had the same."""
    digest = hashlib.sha256(ids.cpu().numpy().tobytes())
    if documents is not None:
        digest.update(documents.cpu().numpy().tobytes())
    return digest.hexdigest()[:12]
