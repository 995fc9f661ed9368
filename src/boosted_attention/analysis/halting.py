"""How many rounds tokens take in layers that halt, or repeats of all blocks: by layer and by the kind of token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from boosted_attention.analysis.specialisation import is_punctuation
from boosted_attention.analysis.survey import rounded, survey
from boosted_attention.attention.trace import LayerTrace
from boosted_attention.documentation import documented
from boosted_attention.model.repeats import AdaptiveRepeats, Thought
from boosted_attention.progress import Progress
from boosted_attention.validation import require

TOKEN_KINDS = ("word", "part of a word", "number", "punctuation", "space")


@documented
@dataclass(frozen=True, kw_only=True)
class RoundsTaken:
    """Mean numbers of rounds that tokens took in the layers that halt, or of repeats."""

    mean: float  # Mean over tokens and layers.
    layers: list[float]  # Mean over tokens, for each layer that halts; of repeats, which all blocks share, one number.
    kinds: dict[str, float]  # Mean over layers and the tokens of a kind, for the kinds that occur.


def token_kind(text: str) -> str:
    """Return the kind of a token, one of TOKEN_KINDS; a word begins behind a space."""
    if not text.strip():
        return "space"
    if is_punctuation(text):
        return "punctuation"
    if any(character.isdigit() for character in text):
        return "number"
    return "word" if text[0].isspace() else "part of a word"


class RoundsStudy:
    """Sums of rounds taken, by layer and kind of token.

    Args:
        vocabulary: text of every token.
    """

    def __init__(self, vocabulary: Sequence[str]):
        self.kinds = torch.tensor([TOKEN_KINDS.index(token_kind(text)) for text in vocabulary])  # (V,)
        self.rounds: dict[int, Tensor] = {}  # layer: sums by kind
        self.tokens = torch.zeros(len(TOKEN_KINDS), dtype=torch.float64)  # of each kind

    def add(self, ids: Tensor, traces: Sequence[LayerTrace]) -> None:
        """Take in token ids (B, T) and the trace of each layer."""
        self.count(ids, {i: trace.rounds_taken for i, trace in enumerate(traces) if trace.rounds_taken is not None})

    def count(self, ids: Tensor, taken: Mapping[int, Tensor]) -> None:
        """Take in token ids (B, T) and what they took (B, T), by layer."""
        kinds = self.kinds.to(ids.device)[ids].flatten()
        self.tokens += torch.bincount(kinds, minlength=len(TOKEN_KINDS)).cpu()
        for layer, steps in taken.items():
            empty = torch.zeros(len(TOKEN_KINDS), dtype=torch.float64, device=ids.device)
            summed = empty.index_add(0, kinds, steps.double().flatten())
            self.rounds[layer] = self.rounds.get(layer, 0) + summed.cpu()

    def result(self) -> RoundsTaken:
        """Return the means over all that was added."""
        require(bool(self.rounds), "no layer of the model halts: build it with halting=True or 'act'")
        sums = torch.stack(list(self.rounds.values()))  # (layers, kinds)
        per_kind = sums.mean(dim=0) / self.tokens
        return RoundsTaken(
            mean=float(sums.mean(dim=0).sum() / self.tokens.sum()),
            layers=(sums.sum(dim=1) / self.tokens.sum()).tolist(),
            kinds={kind: float(per_kind[i]) for i, kind in enumerate(TOKEN_KINDS) if self.tokens[i] > 0},
        )


class RepeatsStudy(RoundsStudy):
    """Sums of repeats taken, by kind of token, read behind each pass of the model.

    Args:
        vocabulary: text of every token.
        repeats: what repeats the model's blocks until tokens stop.
    """

    def __init__(self, vocabulary: Sequence[str], repeats: AdaptiveRepeats):
        super().__init__(vocabulary)
        self.taken: Tensor | None = None  # (B, T), of the last pass
        self.hook = repeats.register_forward_hook(self.keep)

    def keep(self, module: nn.Module, args: Any, thought: Thought) -> None:
        """Remember what the tokens of a pass took."""
        self.taken = thought.taken

    def add(self, ids: Tensor, traces: Sequence[LayerTrace]) -> None:
        """Take in token ids (B, T) and what they took in the pass just made."""
        assert self.taken is not None
        self.count(ids, {0: self.taken})


def rounds_taken(
    model: nn.Module, rows: Tensor, vocabulary: Sequence[str], *, progress: Progress = lambda fraction: None
) -> RoundsTaken:
    """Measure how many rounds, or repeats of all blocks, the tokens of some sequences take.

    Args:
        model: any module with layers that halt, or with blocks that are repeated until tokens stop (``halting="act"``),
            called with token ids (B, T).
        rows: sequences (n, T + 1).
        vocabulary: text of every token.
        progress: called with the fraction done.
    """
    repeats = next((module for module in model.modules() if isinstance(module, AdaptiveRepeats)), None)
    study = RoundsStudy(vocabulary) if repeats is None else RepeatsStudy(vocabulary, repeats)
    try:
        survey(model, rows, [study], progress=progress)
    finally:
        if isinstance(study, RepeatsStudy):
            study.hook.remove()
    return rounded(study.result())
