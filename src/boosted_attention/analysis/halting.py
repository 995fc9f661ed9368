"""How many rounds tokens take in layers that halt, layer by layer and by the kind of token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from boosted_attention.analysis.specialisation import is_punctuation
from boosted_attention.analysis.survey import rounded, survey
from boosted_attention.attention.trace import LayerTrace
from boosted_attention.documentation import documented
from boosted_attention.progress import Progress
from boosted_attention.validation import require

TOKEN_KINDS = ("word", "part of a word", "number", "punctuation", "space")


@documented
@dataclass(frozen=True, kw_only=True)
class RoundsTaken:
    """Mean numbers of rounds that tokens took in the layers that halt."""

    mean: float  # Mean over tokens and layers.
    layers: list[float]  # Mean over tokens, for each layer that halts.
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
        kinds = self.kinds.to(ids.device)[ids].flatten()
        self.tokens += torch.bincount(kinds, minlength=len(TOKEN_KINDS)).cpu()
        for layer, trace in enumerate(traces):
            if trace.rounds_taken is not None:
                taken = trace.rounds_taken.double().flatten()
                summed = torch.zeros(len(TOKEN_KINDS), dtype=torch.float64, device=ids.device).index_add(
                    0, kinds, taken
                )
                self.rounds[layer] = self.rounds.get(layer, 0) + summed.cpu()

    def result(self) -> RoundsTaken:
        """Return the means over all that was added."""
        require(bool(self.rounds), "no layer of the model halts: build it with halting=True")
        sums = torch.stack(list(self.rounds.values()))  # (layers, kinds)
        per_kind = sums.mean(dim=0) / self.tokens
        return RoundsTaken(
            mean=float(sums.mean(dim=0).sum() / self.tokens.sum()),
            layers=(sums.sum(dim=1) / self.tokens.sum()).tolist(),
            kinds={kind: float(per_kind[i]) for i, kind in enumerate(TOKEN_KINDS) if self.tokens[i] > 0},
        )


@torch.no_grad()
def rounds_taken(
    model: nn.Module, rows: Tensor, vocabulary: Sequence[str], *, progress: Progress = lambda fraction: None
) -> RoundsTaken:
    """Measure how many rounds the tokens of some sequences take.

    Args:
        model: any module with layers that halt, called with token ids (B, T).
        rows: sequences (n, T + 1).
        vocabulary: text of every token.
        progress: called with the fraction done.
    """
    study = RoundsStudy(vocabulary)
    survey(model, rows, [study], progress=progress)
    return rounded(study.result())
