"""Gradients of one update, accumulated over micro-batches."""

from __future__ import annotations

import torch
from torch import Tensor

from boosted_attention.attention.dropout import rows_from, seed_from
from boosted_attention.train.evaluation import autocast
from boosted_attention.train.parallel import DistributedLoss


def accumulate_gradients(
    distributed: DistributedLoss,
    ids: Tensor,
    targets: Tensor,
    counted: int,
    parts: int,
    precision: str = "float32",
    *,
    documents: Tensor | None = None,
    seed: int = 0,
    first_row: int = 0,
    by_rows: bool = True,
) -> float:
    """Add the gradients of a batch to the parameters, and return the batch's share of the loss.

    Args:
        distributed: the model's loss, as it is called in training.
        ids: this process's rows, (B, T).
        targets: the tokens to predict, (B, T), -100 = ignored.
        counted: targets that count in the whole batch, over all processes; the loss is divided by it.
        parts: micro-batches the rows are computed in.
        precision: "bfloat16" computes under autocast.
        documents: number of each token's document (B, T), where several share a row.
        seed: seed of everything random in this update.
        first_row: place of the first of the rows in the whole batch.
        by_rows: whether all dropout is drawn row by row, as ``attention/dropout.py`` does: it is the same then however
            the batch is divided. Other dropout is given a random state of its own in every part.
    """
    total = torch.zeros((), dtype=torch.float64)
    pieces = list(zip(ids.chunk(parts), targets.chunk(parts), strict=True))
    packed = [{}] * len(pieces) if documents is None else [{"documents": d} for d in documents.chunk(parts)]
    for i, (some_ids, some_targets) in enumerate(pieces):
        torch.manual_seed(seed if by_rows else seed_from(seed, first_row))
        with rows_from(first_row), distributed.synchronised(i == len(pieces) - 1):
            with autocast(ids.device, precision):
                share = distributed.loss(some_ids, some_targets, reduction="sum", **packed[i]) / counted
            (share * distributed.scale).backward()
        total += share.detach().double().cpu()
        first_row += some_ids.shape[0]
    return float(total)
