"""What the page asks, read from JSON and checked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TypeVar

from boosted_attention.records import from_json
from boosted_attention.validation import InputError, require

LONGEST_TEXT = 20_000  # characters
MOST_ADDED = 1_024  # tokens
LONGEST_TAB = 64  # characters of a tab's name


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A factor of one gate."""

    side: int
    layer: int
    round: int
    factor: float


@dataclass(frozen=True, kw_only=True)
class Question:
    """A text, a token of it, and patches.

    Args:
        tab: name of the browser's tab, whose newer questions take the place of older ones.
        number: place of the question among those of the tab.
        text: what was typed.
        added: ids of tokens behind the text, as they were generated: encoded again, their text might be other tokens.
        position: the chosen token; None is the last.
        patches: factors of gates.
    """

    tab: str
    number: int
    text: str
    added: list[int] = field(default_factory=list)
    position: int | None = None
    patches: list[Patch] = field(default_factory=list)

    def __post_init__(self) -> None:
        require(0 < len(self.tab) <= LONGEST_TAB, f"tab must have 1 to {LONGEST_TAB} characters")
        require(self.number >= 0, f"number={self.number} must not be negative")
        require(
            len(self.text) <= LONGEST_TEXT,
            f"The text has {len(self.text):,} characters; at most {LONGEST_TEXT:,} are read.",
        )
        require(len(self.added) <= MOST_ADDED, f"added has {len(self.added)} tokens; at most {MOST_ADDED} are read")


@dataclass(frozen=True, kw_only=True)
class StepQuestion(Question):
    """A question for the next token.

    Args:
        by: which of the models chooses, from 0.
        temperature: randomness of the choice; 0 takes the likeliest.
        seed: random seed; the same text and seed give the same token.
    """

    by: int = 0
    temperature: float = 0.0
    seed: int = 0


Q = TypeVar("Q", bound=Question)


def read(kind: type[Q], body: bytes) -> Q:
    """Read a question from the body of a request.

    Args:
        kind: what is asked.
        body: JSON.
    """
    try:
        value = json.loads(body, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError("the request is not JSON") from error
    try:
        return from_json(kind, value)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"the request is not a question: {error}") from error


def refuse_constant(name: str) -> Any:
    """Refuse NaN and infinities, which Python's JSON knows and the standard does not."""
    raise ValueError(f"{name} is no number of JSON")
