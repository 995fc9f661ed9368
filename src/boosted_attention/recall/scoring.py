"""Scores on a sequence task: accuracy at the trained length and at twice it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from boosted_attention.documentation import documented
from boosted_attention.model.language_model import LanguageModel
from boosted_attention.model.loss import IGNORED
from boosted_attention.recall.task import SequenceTask, batch

TEST_SEED = 1_000_003  # one test set of each length for all seeds and models, so that differences are paired


@documented
@dataclass(frozen=True, kw_only=True)
class RecallResult:
    """Accuracies of a trained model in percent of what is asked."""

    trained: float  # Accuracy at the length it was trained at.
    doubled: float  # Accuracy at twice that length.
    parameters: int  # Number of parameters.


@torch.no_grad()
def accuracy(model: LanguageModel, task: SequenceTask, length: int, size: int) -> float:
    """Return the percentage of answers that are right, at all positions that ask for one.

    Args:
        model: a trained model.
        task: what the sequences are drawn from.
        length: tokens of a sequence.
        size: sequences of the test set.
    """
    ids, targets = batch(task, size, length, seed=TEST_SEED, step=length)
    said = torch.cat([model(part).argmax(dim=-1) for part in ids.split(256)])  # (n, length)
    return 100 * float((said == targets)[targets != IGNORED].double().mean())


def score(model: LanguageModel, task: SequenceTask, size: int) -> RecallResult:
    """Score a trained model.

    Args:
        model: a model that takes sequences of twice the trained length.
        task: what it was trained on.
        size: sequences of the test set, of either length.
    """
    return RecallResult(
        trained=accuracy(model, task, task.length, size),
        doubled=accuracy(model, task, 2 * task.length, size),
        parameters=model.config.num_params(),
    )
