"""Quantities: named numbers that tables show, claims judge and figures draw.

An experiment makes its quantities once, as objects at the top of its file. Table, claim and figure share them, so that
a misspelt one is an error when the file is imported.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Quantity:
    """A number that an experiment measures.

    Args:
        name: what it is; unique within its experiment.
        paper: the paper's value, where it gives one.
        text: corpus it is measured on, for quantities of language models; "" in a claim means every corpus.
    """

    name: str
    paper: float | None = field(default=None, compare=False)
    text: str = ""

    def on(self, text: str) -> Quantity:
        """The same quantity on a corpus."""
        return replace(self, text=text)

    def with_paper(self, paper: float | None) -> Quantity:
        """The same quantity with another value of the paper's."""
        return replace(self, paper=paper)

    def __str__(self) -> str:
        return f"{self.name} | {self.text}" if self.text else self.name


def difference(a: Quantity, b: Quantity, name: str | None = None) -> Quantity:
    """The quantity a - b; the paper's value follows where it gives both."""
    paper = None if a.paper is None or b.paper is None else round(a.paper - b.paper, 6)
    return Quantity(f"{a.name} - {b.name}" if name is None else name, paper)
