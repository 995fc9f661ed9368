"""Composition of permutations: after each of a sequence of them, the product so far.

    s_0 = p_0,    s_t = p_t o s_{t-1},    with p_t one of the four swaps of neighbours, which generate all of S5

Deciding such products is complete for NC1: a transformer of fixed depth, which lies in TC0, cannot do it at every
length unless the two classes are one. The reference draws from all 120 permutations, of which models this small learn
no more than the first position. Permutations are numbered in lexicographic order, so that 0 is the identity.

Reference: Merrill, Petty and Sabharwal, "The Illusion of State in State-Space Models", ICML 2024,
https://arxiv.org/abs/2404.08819
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import permutations

import torch
from torch import Tensor

from boosted_attention.validation import is_count, require

THINGS = 5
ELEMENTS = list(permutations(range(THINGS)))  # of S5, in lexicographic order
NUMBER = {element: i for i, element in enumerate(ELEMENTS)}


@cache
def products() -> Tensor:
    """Return the multiplication table (120, 120): entry (a, b) is the number of a after b. Not to be written to."""
    return torch.tensor([[NUMBER[tuple(a[i] for i in b)] for b in ELEMENTS] for a in ELEMENTS])


@cache
def swaps() -> Tensor:
    """Return the numbers of the four swaps of neighbours, (4,): not to be written to."""
    rows = [list(range(THINGS)) for _ in range(THINGS - 1)]
    for i, row in enumerate(rows):
        row[i : i + 2] = i + 1, i
    return torch.tensor([NUMBER[tuple(row)] for row in rows])


@dataclass(frozen=True, kw_only=True)
class PermutationComposition:
    """The word problem of the symmetric group S5, over swaps of neighbours.

    Args:
        length: swaps in a training sequence.
    """

    length: int = 8

    def __post_init__(self) -> None:
        require(is_count(self.length), f"length={self.length!r} must be at least 1")

    @property
    def vocab_size(self) -> int:
        """Number of permutations."""
        return len(ELEMENTS)

    def draw(self, n: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw swaps (n, length), and the product up to each (n, length).

        Args:
            n: number of sequences.
            length: swaps in each.
            generator: source of randomness.
        """
        ids = swaps()[torch.randint(len(swaps()), (n, length), generator=generator)]
        targets = ids.clone()
        for t in range(1, length):
            targets[:, t] = products()[ids[:, t], targets[:, t - 1]]
        return ids, targets
