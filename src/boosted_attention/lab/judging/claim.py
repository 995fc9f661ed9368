"""A claim: a sentence of the paper that software can test, the quantity that decides it, and the rule.

Claims stand in the files of their experiments. Verdicts are computed, never written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.judging.verdicts import NOT_REPRODUCED, NOT_RUN, REPRODUCED, WITHIN_NOISE, Criterion, below
from boosted_attention.statistics import Estimate


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence that a quantity decides; ``claim`` makes one."""

    id: str
    section: str
    sentence: str  # in our own words
    paper: str  # its number
    quantity: Quantity
    criterion: Criterion
    given: Quantity | None = None  # a difference that must lie below zero for the claim to be about anything
    control: bool = False  # implied by the paper's reading without being said: judged, shown and counted apart
    experiment: str = ""  # filled in by the experiment it belongs to
    needs_full_size: bool = False  # filled in likewise: a figure that means nothing at another size or text


def claim(
    id: str,
    section: str,
    quantity: Quantity,
    criterion: Criterion,
    sentence: str,
    *,
    paper: str | None = None,
    given: Quantity | None = None,
    control: bool = False,
) -> Claim:
    """Make a claim.

    Args:
        id: short name, unique among all claims.
        section: where the paper says it.
        quantity: what decides it.
        criterion: the rule; ``number()`` takes its target from the quantity.
        sentence: what is said, in our own words.
        paper: the paper's number as text; that of the quantity by default.
        given: a difference that must lie below zero before the claim can be judged.
        control: whether it is ours and not the paper's.
    """
    if criterion.rule == "number":
        assert quantity.paper is not None, f"{id}: the paper gives no number for {quantity}"
        criterion = replace(criterion, target=quantity.paper)
    assert paper is not None or quantity.paper is not None, f"{id}: what does the paper say? pass paper="
    return Claim(
        id=id,
        section=section,
        sentence=sentence,
        paper=str(quantity.paper) if paper is None else paper,
        quantity=quantity,
        criterion=criterion,
        given=given,
        control=control,
    )


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim with our number and the verdict that follows from it."""

    claim: Claim
    ours: Estimate | None
    verdict: str
    scale: str | None = None  # what was run, where it is smaller than the paper's own


def judge(claim: Claim, tables: Mapping[str, Table]) -> Judged:
    """Judge a claim by its experiment's table.

    Raises:
        KeyError: the table has neither the claim's quantity nor a reason why it is missing.
    """
    table = tables.get(claim.experiment)
    if table is None or claim.quantity in table.missing or claim.given in table.missing:
        return Judged(claim=claim, ours=None, verdict=NOT_RUN)
    scale = None if claim.quantity in table.at_full_size else table.scale
    ours = table.quantities[claim.quantity]
    if scale is not None and claim.needs_full_size:
        return Judged(claim=claim, ours=None, verdict=NOT_RUN)
    if claim.given is not None:  # a gain must be there before one can ask how it is divided
        gain = below().judge(table.quantities[claim.given])
        if gain != REPRODUCED:
            verdict = WITHIN_NOISE if gain == WITHIN_NOISE else NOT_REPRODUCED
            return Judged(claim=claim, ours=ours, verdict=verdict, scale=scale)
    return Judged(claim=claim, ours=ours, verdict=claim.criterion.judge(ours), scale=scale)
