"""Multi-query associative recall: pairs of a key and a value are shown, then every key is asked for its value.

    A 4 B 3 C 6 D 1   C 6 A 4 D 1 B 3        what is to be said at the keys of the second half: 6 4 1 3

Keys are distinct within a sequence, values need not be. A sequence of T tokens shows T/4 pairs, so that a longer one
shows more. Every key is asked once, in an order drawn at random: the reference lets a power law place the questions.

Reference: Arora et al., "Zoology: Measuring and Improving Recall in Efficient Language Models", ICLR 2024,
https://arxiv.org/abs/2312.04927
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boosted_attention.model.loss import IGNORED
from boosted_attention.validation import is_count, require


@dataclass(frozen=True, kw_only=True)
class AssociativeRecall:
    """Multi-query associative recall. Tokens below ``n_keys`` are keys, the others values.

    Args:
        length: tokens of a training sequence, a multiple of 4.
        n_keys: keys in the vocabulary, at least a quarter of the longest sequence.
        n_values: values in the vocabulary.
    """

    length: int = 32
    n_keys: int = 32
    n_values: int = 32

    def __post_init__(self) -> None:
        for option in ("length", "n_keys", "n_values"):
            require(is_count(getattr(self, option)), f"{option}={getattr(self, option)!r} must be at least 1")
        self._pairs(self.length)

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self.n_keys + self.n_values

    def _pairs(self, length: int) -> int:
        """Return how many pairs a sequence shows."""
        pairs, rest = divmod(length, 4)
        require(rest == 0, f"length={length} must be a multiple of 4: pairs are shown and asked, two tokens each")
        require(pairs <= self.n_keys, f"length={length} needs {pairs} different keys, and n_keys={self.n_keys}")
        return pairs

    def draw(self, n: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw token ids (n, length), and the value at every key that is asked for (n, length), -100 elsewhere.

        Args:
            n: number of sequences.
            length: tokens of each, a multiple of 4.
            generator: source of randomness.
        """
        pairs = self._pairs(length)
        keys = torch.rand(n, self.n_keys, generator=generator).argsort(dim=-1)[:, :pairs]  # (n, P), distinct
        values = self.n_keys + torch.randint(self.n_values, (n, pairs), generator=generator)  # (n, P)
        shown = torch.stack([keys, values], dim=-1)  # (n, P, 2)
        order = torch.rand(n, pairs, generator=generator).argsort(dim=-1)  # (n, P)
        asked = shown.gather(1, order[..., None].expand(-1, -1, 2))  # (n, P, 2)
        ids = torch.cat([shown, asked], dim=1).flatten(1)  # (n, 4 P)
        targets = torch.full_like(ids, IGNORED)
        targets[:, 2 * pairs :: 2] = asked[..., 1]
        return ids, targets
