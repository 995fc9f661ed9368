"""Evaluation: the mean loss over every token of a split, none left out and none counted twice.

full        windows of T tokens of running text, which see across documents; with a stride, each token has at least
            T - stride tokens of context
paper       rows of T tokens with T - 1 predictions each, an incomplete last batch left out
documents   documents that see nothing of each other, packed into rows of T tokens; a document's first token is not
            predicted, so that such a perplexity is of fewer tokens and only comparable with its like
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from boosted_attention.data.packing import Batch, PackedRows
from boosted_attention.documentation import documented
from boosted_attention.model.loss import IGNORED
from boosted_attention.model.protocols import CausalModel
from boosted_attention.train.config import PROTOCOLS
from boosted_attention.train.parallel import ALONE, Parallel
from boosted_attention.validation import is_count, require, require_choice


@documented
@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How well a model predicts some text."""

    loss: float  # Mean loss in nats per token.
    tokens: int  # Number of predicted tokens.
    bits_per_byte: float | None  # Loss in bits per byte of text; None where the text cannot be counted in bytes.

    @property
    def perplexity(self) -> float:
        return perplexity_of(self.loss)


def perplexity_of(loss: float) -> float:
    """Return e to the loss in nats; a loss beyond 700 counts as 700, so that there is a number."""
    return math.exp(min(loss, 700.0))


def windows(n_tokens: int, length: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, first, end) of each window: targets from ``first`` to ``end`` are new; token 0 has no context."""
    start, first = 0, 1
    while first < n_tokens:
        end = min(start + length + 1, n_tokens)
        yield start, first, end
        start, first = start + stride, end


def evaluation_batches(
    tokens: np.ndarray, *, length: int, stride: int, batch_size: int, protocol: str, end_of_text: int | None
) -> Iterator[Batch]:
    """Yield batches of rows (B, T); targets that are not to be counted are IGNORED."""
    if protocol == "documents":
        rows = PackedRows(tokens, end_of_text=end_of_text, length=length)
        require(len(rows) > 0, "protocol='documents': no document of the split has two tokens")
        for i in range(0, len(rows), batch_size):
            yield rows(range(i, min(i + batch_size, len(rows))))
        return
    if protocol == "paper":
        whole = len(tokens) // length // batch_size * batch_size
        for i in range(0, whole, batch_size):
            rows = tokens[i * length : (i + batch_size) * length].reshape(batch_size, length)
            rows = torch.from_numpy(rows.astype(np.int64))
            yield Batch(rows[:, :-1], rows[:, 1:])
        return
    spans = list(windows(len(tokens), length, stride))
    for i in range(0, len(spans), batch_size):
        group = spans[i : i + batch_size]
        width = max(end - 1 - start for start, _, end in group)
        ids = torch.zeros(len(group), width, dtype=torch.long)
        targets = torch.full((len(group), width), IGNORED)
        for row, (start, first, end) in enumerate(group):
            text = torch.from_numpy(tokens[start:end].astype(np.int64))
            ids[row, : end - 1 - start] = text[:-1]  # what stands behind it is seen by no counted target
            targets[row, first - 1 - start : end - 1 - start] = text[first - start :]
        yield Batch(ids, targets)


@torch.no_grad()
def evaluate(
    model: CausalModel,
    tokens: np.ndarray,
    *,
    byte_lengths: np.ndarray | None = None,
    stride: int | None = None,
    batch_size: int = 32,
    protocol: str = "full",
    end_of_text: int | None = None,
    precision: str = "float32",
    progress: Callable[[float], None] = lambda fraction: None,
    parallel: Parallel = ALONE,
) -> Evaluation:
    """Return the mean loss of the model over an array of tokens.

    Args:
        model: the model; it is left in the mode it was in.
        tokens: (N,) token ids.
        byte_lengths: (V,) bytes of text behind each token id, for bits per byte.
        stride: how far windows move, max_len by default; less gives each token more context and takes longer.
        batch_size: windows at a time.
        protocol: "full", "paper" for figures to be compared with the paper's, or "documents" for each document alone.
        end_of_text: token behind every document, for protocol="documents".
        precision: "bfloat16" evaluates under autocast.
        progress: called with the fraction that is done.
        parallel: processes that share the work; all of them get the whole result.
    """
    require_choice("protocol", protocol, PROTOCOLS)
    length = model.config.max_len
    require(is_count(batch_size), f"batch_size={batch_size} must be at least 1")
    require(protocol != "paper" or length > 1, "protocol='paper': a row of max_len=1 predicts nothing")
    given, stride = stride, length if stride is None else stride
    require(is_count(stride) and stride <= length, f"stride={stride} must lie between 1 and max_len={length}")
    require(protocol == "full" or stride == length, f"stride={given}: protocol={protocol!r} has no stride")
    need = length * batch_size if protocol == "paper" else 2
    require(len(tokens) >= need, f"the split has {len(tokens)} tokens; protocol={protocol!r} needs at least {need}")
    device = next(model.parameters()).device
    total, counted, n_bytes, done = torch.zeros((), dtype=torch.float64), 0, 0, 0
    was_training = model.training
    model.eval()
    try:
        batches = evaluation_batches(
            tokens, length=length, stride=stride, batch_size=batch_size, protocol=protocol, end_of_text=end_of_text
        )
        for ids, targets, documents in parallel.dealt(batches, uncounted):
            packed = {} if documents is None else {"documents": documents.to(device)}
            with autocast(device, precision):
                losses = model.loss(ids.to(device), targets.to(device), reduction="none", **packed)
            total += losses.double().sum().cpu()
            predicted = targets[targets != IGNORED]
            counted += len(predicted)
            n_bytes += 0 if byte_lengths is None else int(byte_lengths[predicted.numpy()].sum())
            done += ids.shape[0] * parallel.world
            progress(min(1.0, done * stride / len(tokens)))
    finally:
        model.train(was_training)
    loss, counted, n_bytes = parallel.sums(float(total), counted, n_bytes)
    bits = loss / math.log(2) / n_bytes if n_bytes else None
    return Evaluation(loss=loss / counted, tokens=int(counted), bits_per_byte=bits)


def uncounted(batch: Batch) -> Batch:
    """Return the batch with all its targets ignored."""
    return batch._replace(targets=torch.full_like(batch.targets, IGNORED))


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Return the context in which a model is called at this precision."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext()
