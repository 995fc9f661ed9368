"""Agreement of two folders of results: whether the comparisons that both have point the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boosted_attention.lab.judging.table import Comparison, Table
from boosted_attention.statistics import Estimate


@dataclass(frozen=True, kw_only=True)
class Both:
    """One comparison as two folders have it, perhaps on different texts."""

    experiment: str
    first: Comparison
    second: Comparison

    @property
    def agrees(self) -> bool:
        """Whether the signs are the same, or one of the two cannot tell."""
        signs = {sign(self.first.difference), sign(self.second.difference)}
        return 0 in signs or len(signs) == 1

    def __str__(self) -> str:
        shown = [
            f"{c.label} {c.difference.mean:+.3g} [{c.difference.low:+.3g}, {c.difference.high:+.3g}]"
            for c in (self.first, self.second)
        ]
        return f"{self.experiment}: {' against '.join(shown)}"


def sign(difference: Estimate) -> int:
    """The side of zero that the whole interval lies on, -1 or 1; 0 where it contains zero or there is none."""
    if difference.n < 2:
        return 0
    return (difference.low > 0) - (difference.high < 0)


def in_both(first: Mapping[str, Table], second: Mapping[str, Table]) -> list[Both]:
    """The comparisons of one folder's tables beside those of the other that have the same name, text by text."""
    return [
        Both(experiment=name, first=a, second=b)
        for name in first
        if name in second
        for a in first[name].comparisons
        for b in second[name].comparisons
        if a.quantity.name == b.quantity.name
    ]


def contrary(pairs: Sequence[Both]) -> list[str]:
    """The comparisons that both folders decide, and decide differently, in words."""
    return [str(both) for both in pairs if not both.agrees]
