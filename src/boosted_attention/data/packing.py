"""Packing: whole documents side by side in rows of one length.

A document reaches from behind one end-of-text token to the next. Its tokens predict each other and the end of text
that closes it; its first token is predicted by nothing. So n + 1 tokens with their end of text are n places of a row,
every one of which predicts. A document longer than a row is cut into pieces, each of which is taken for a document. The
longest pieces are placed first, each in the row with the least room that takes it; what is left of a row is padding,
which predicts nothing.

Reference: Ding et al., "Fewer Truncations Improve Language Modeling", ICML 2024, https://arxiv.org/abs/2404.10830
(best-fit packing).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from boosted_attention.model.loss import IGNORED
from boosted_attention.validation import InputError


class Batch(NamedTuple):
    """Rows of tokens and what each of them predicts."""

    ids: Tensor  # (B, T)
    targets: Tensor  # (B, T), IGNORED where nothing is predicted
    documents: Tensor | None = None  # (B, T), number of each token's document in its row; None for running text


class PackedRows:
    """The rows of a text whose documents are packed: ``rows([4, 0])`` gives the fifth and the first, (2, T).

    Args:
        tokens: token ids (N,).
        end_of_text: token behind every document; None for a tokenizer that has none, which is refused.
        length: tokens per row, T.
    """

    def __init__(self, tokens: np.ndarray, *, end_of_text: int | None, length: int):
        if end_of_text is None:
            raise InputError("documents cannot be told apart: the tokenizer has no end-of-text token")
        self.tokens, self.end_of_text, self.length = tokens, end_of_text, length
        starts, sizes = pieces(tokens, end_of_text, length)
        rows = best_fit(sizes, length)
        order = np.lexsort((starts, rows))  # by row, in the order of the text
        self.starts, self.sizes = starts[order], sizes[order]
        n_rows = int(rows.max(initial=-1)) + 1
        self.first = np.searchsorted(rows[order], np.arange(n_rows + 1))  # piece of each row

    def __len__(self) -> int:
        return len(self.first) - 1

    def __call__(self, rows: Iterable[int]) -> Batch:
        chosen = list(rows)
        ids = torch.full((len(chosen), self.length), self.end_of_text)
        targets, documents = torch.full_like(ids, IGNORED), torch.zeros_like(ids)
        for b, row in enumerate(chosen):
            at = 0
            for i in range(self.first[row], self.first[row + 1]):
                start, size = int(self.starts[i]), int(self.sizes[i])
                text = torch.from_numpy(self.tokens[start : start + size + 1].astype(np.int64))
                ids[b, at : at + size], targets[b, at : at + size] = text[:-1], text[1:]
                at += size
                documents[b, at:] += 1  # of the next piece, or the padding
        return Batch(ids, targets, documents)


def pieces(tokens: np.ndarray, end_of_text: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return start and size of every piece of a document, in the order of the text; a size counts predicted tokens.

    Args:
        tokens: token ids (N,).
        end_of_text: token behind every document but perhaps the last.
        longest: most tokens that a piece predicts.
    """
    ends = np.flatnonzero(tokens == end_of_text)
    starts = np.concatenate([[0], ends + 1])
    sizes = np.concatenate([ends, [len(tokens) - 1]]) - starts  # from each token but the last, the end of text
    starts, sizes = starts[sizes > 0], sizes[sizes > 0]
    counts = -(-sizes // longest)
    nth = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)  # piece of its document
    return np.repeat(starts, counts) + longest * nth, np.minimum(longest, np.repeat(sizes, counts) - longest * nth)


def best_fit(sizes: np.ndarray, room: int) -> np.ndarray:
    """Return the row of each piece, the longest placed first, each in the row with the least room that takes it.

    Args:
        sizes: size of each piece (N,), at most ``room``.
        room: size of a row.
    """
    rows = np.empty(len(sizes), dtype=np.int64)
    with_room: list[list[int]] = [[] for _ in range(room + 1)]  # rows by the room they have left
    some, n_rows = 0, 0  # bit r of ``some``: there is a row with room r
    for i in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[i])
        enough = some >> size
        if enough:
            left = size + (enough & -enough).bit_length() - 1  # the lowest bit
            row = with_room[left].pop()
            some ^= 0 if with_room[left] else 1 << left
        else:
            left, row, n_rows = room, n_rows, n_rows + 1
        left -= size
        if left:
            with_room[left].append(row)
            some |= 1 << left
        rows[i] = row
    return rows
