"""A claim: a sentence that software can test, the fact it belongs to, the quantity that decides it, and the rule.

Claims stand in the files of their experiments. Verdicts are computed, never written down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from boosted_attention.lab.judging.facts import Fact
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.verdicts import Criterion


class Role(Enum):
    """What a claim is to its fact."""

    PART = "part"  # decides the fact
    NUMBER = "number"  # a figure of the paper, judged by itself
    ASIDE = "aside"  # said by the paper beside the fact
    CONTROL = "control"  # implied by the paper's reading without being said: ours


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence that a quantity decides; ``claim`` makes one."""

    id: str
    fact: Fact
    role: Role
    section: str
    sentence: str  # in our own words
    paper: str  # its number
    quantity: Quantity  # with a text where the sentence is about that text alone
    criterion: Criterion
    experiment: str = ""  # filled in by the experiment it belongs to
    kind: Kind | None = None  # filled in likewise


FIGURES = ("number", "digits")  # rules that compare with a figure of the paper


def claim(
    id: str,
    fact: Fact,
    quantity: Quantity,
    criterion: Criterion,
    sentence: str,
    *,
    section: str | None = None,
    paper: str | None = None,
    role: Role | None = None,
) -> Claim:
    """Make a claim.

    Args:
        id: short name, unique among all claims.
        fact: what it belongs to.
        quantity: what decides it.
        criterion: the rule; those for figures take their target from the quantity.
        sentence: what is said, in our own words.
        section: where the paper says it; where it states the fact by default.
        paper: the paper's number as text; that of the quantity by default.
        role: what it is to its fact; by default a number where a figure is judged, and a part elsewhere.
    """
    if criterion.rule in FIGURES:
        assert quantity.paper is not None, f"{id}: the paper gives no number for {quantity}"
        criterion = replace(criterion, target=quantity.paper)
    assert paper is not None or quantity.paper is not None, f"{id}: what does the paper say? pass paper="
    return Claim(
        id=id,
        fact=fact,
        role=role or (Role.NUMBER if criterion.rule in FIGURES else Role.PART),
        section=fact.section if section is None else section,
        sentence=sentence,
        paper=str(quantity.paper) if paper is None else paper,
        quantity=quantity,
        criterion=criterion,
    )
