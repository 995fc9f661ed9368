"""Answers to the page's questions, from one loaded run or two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boosted_attention.analysis.survey import rounded
from boosted_attention.attention.trace import traced_layers
from boosted_attention.explore.passes import Check, run_pass
from boosted_attention.explore.patching import Factors
from boosted_attention.explore.questions import Question, StepQuestion
from boosted_attention.explore.views import GUESSES, Guess, RoundView, View, guess, layer_view, likeliest, look_at
from boosted_attention.model.generation import Sampling
from boosted_attention.train.folder import TrainedRun
from boosted_attention.validation import require

LONGEST = 512  # tokens that are looked at, of models that read more
DIGITS = 5  # of numbers on the page


@dataclass(frozen=True, kw_only=True)
class SideAbout:
    """What the page says of a model before any text."""

    name: str
    parameters: int
    rounds: list[int]  # by layer


@dataclass(frozen=True, kw_only=True)
class About:
    """What the page is about."""

    sides: list[SideAbout]
    longest: int  # tokens
    command: str  # that starts the server again


@dataclass(frozen=True, kw_only=True)
class LayerPart:
    """A layer of a view, which comes behind the rest of it."""

    side: int
    layer: int
    rounds: list[RoundView]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A chosen token, and what else might have been chosen."""

    chosen: Guess
    alternatives: list[Guess]


class Explorer:
    """One run, or two that are compared, with all that can be asked of them.

    Args:
        runs: one or two loaded runs with the same tokenizer.
        names: what they are called.
        command: the command that starts the page again, which it shows when the server is gone.
    """

    def __init__(self, runs: Sequence[TrainedRun], names: Sequence[str], command: str):
        for run in runs:
            found = traced_layers(run.module)
            require(bool(found), f"{run.folder} has no attention layer of boosted_attention; boost gives a model some")
        self.runs, self.names, self.command = runs, names, command
        self.tokenizer = runs[0].tokenizer
        self.vocabulary = self.tokenizer.vocabulary()
        self.longest: int = min(LONGEST, *(run.config.model.max_len for run in runs))

    def about(self) -> About:
        """Describe the models."""
        sides = [
            SideAbout(
                name=name,
                parameters=sum(p.numel() for p in run.module.parameters()),
                rounds=[layer.n_rounds for layer in traced_layers(run.module).values()],
            )
            for run, name in zip(self.runs, self.names, strict=True)
        ]
        return About(sides=sides, longest=self.longest, command=self.command)

    def parts(self, question: Question, check: Check) -> Iterator[View | LayerPart]:
        """Answer what all models make of a text: first what is known of all of it, then layer after layer.

        Args:
            question: the text, the chosen token and the patches.
            check: raises where nobody waits for the answer any more.
        """
        ids = self.ids_of(question)
        position = len(ids) - 1 if question.position is None else question.position
        require(0 <= position < len(ids), f"position={position}: the text has {len(ids)} tokens")
        found = [
            look_at(run.module, ids, position, self.factors_of(question, side), self.vocabulary, check)
            for side, run in enumerate(self.runs)
        ]
        tokens = [self.text_of(i) for i in ids.tolist()]
        sides = [looked.side for looked in found]
        yield rounded(View(tokens=tokens, ids=ids.tolist(), position=position, sides=sides), DIGITS)
        for side, looked in enumerate(found):
            for layer in range(len(looked.done.layers)):
                check()
                rounds = layer_view(looked, layer, position, self.vocabulary)
                yield rounded(LayerPart(side=side, layer=layer, rounds=rounds), DIGITS)

    def step(self, question: StepQuestion, check: Check) -> Step:
        """Choose the token behind a text, as one of the models does with its patches.

        Args:
            question: the text, the patches and how to choose.
            check: raises where nobody waits for the answer any more.
        """
        require(0 <= question.by < len(self.runs), f"by={question.by}: there are {len(self.runs)} models, from 0 on")
        sampling = Sampling(temperature=question.temperature, seed=question.seed)
        ids = self.ids_of(question)
        factors = self.factors_of(question, question.by)
        done = run_pass(self.runs[question.by].module, ids, factors, check, with_lens=False)
        last = done.logits[-1]  # (V,)
        chosen = int(sampling.choose(last[None], sampling.generator(last.device)))
        p = last.softmax(dim=-1)
        step = Step(chosen=guess(chosen, p, self.vocabulary), alternatives=likeliest(p, GUESSES, self.vocabulary))
        return rounded(step, DIGITS)

    def ids_of(self, question: Question) -> Tensor:
        """Return the token ids (T,) of a question: those of its text, then the added ones."""
        ids = [*self.tokenizer.encode(question.text), *question.added]
        require(bool(ids), "Type a text: there is no token to look at yet.")
        require(
            len(ids) <= self.longest,
            f"The text has {len(ids)} tokens; {'these models read' if len(self.runs) > 1 else 'this model reads'} at "
            f"most {self.longest}. Shorten it.",
        )
        size = self.tokenizer.vocab_size
        wrong = [i for i in question.added if not 0 <= i < size]
        require(not wrong, f"added={wrong[:1]} is outside the vocabulary of {size} tokens")
        return torch.tensor(ids)

    def factors_of(self, question: Question, side: int) -> Factors:
        """Return the factors of one model's gates, without those that change nothing."""
        for patch in question.patches:
            require(0 <= patch.side < len(self.runs), f"side={patch.side}: there are {len(self.runs)} models")
        return {(p.layer, p.round): p.factor for p in question.patches if p.side == side and p.factor != 1}

    def text_of(self, i: int) -> str:
        """Return the text of a token id."""
        return self.vocabulary[i] if i < len(self.vocabulary) else f"<{i}>"
