"""Places: where a number was measured. Nothing measured at one place judges another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What kind of evidence a number is."""

    THEORY = "theory"
    SYNTHETIC = "synthetic"
    LANGUAGE = "language model"
    FINETUNE = "fine-tuning"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Kind of evidence, and for models the text and the size.

    Args:
        kind: what the number is about.
        text: corpus, where there is one.
        size: parameters of the boosted model, or the name of the pretrained one.
        is_the_papers: whether text, size and training are the paper's own.
    """

    kind: Kind
    text: str = ""
    size: str = ""
    is_the_papers: bool = False

    def __str__(self) -> str:
        return ", ".join(part for part in (self.text, self.size) if part) or self.kind.value
