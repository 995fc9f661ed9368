"""Sequence tasks that perplexity does not show: associative recall, and keeping track of a state."""

from boosted_attention.recall.associative import AssociativeRecall
from boosted_attention.recall.permutations import PermutationComposition
from boosted_attention.recall.scoring import RecallResult, accuracy, score
from boosted_attention.recall.task import SequenceTask, batch
from boosted_attention.recall.training import train

__all__ = [
    "AssociativeRecall",
    "PermutationComposition",
    "RecallResult",
    "SequenceTask",
    "accuracy",
    "batch",
    "score",
    "train",
]
