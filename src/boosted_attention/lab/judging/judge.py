"""Judging: claims by the tables of their experiments, place by place, and facts by their parts.

A family is the parts of one fact at one place; the controls of a place are a family of their own. A part supports its
fact if it is significant alone, since the fact needs all of them; it contradicts it if it is significant the other way
after Holm's correction. A fact that needs one part is decided by those that were run; such a part, and every control,
must be significant after the correction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from boosted_attention.lab.judging.claim import Claim, Role
from boosted_attention.lab.judging.facts import FACTS, Fact
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.judging.verdicts import (
    CANNOT_TELL,
    CONTRADICTED,
    FAILED,
    LEVEL,
    NOT_REPRODUCED,
    NOT_RUN,
    OPEN,
    REPRODUCED,
    PValues,
)
from boosted_attention.statistics import Estimate, holm

ELSEWHERE = "judged at the paper's own size and text only"
EXPLAINS = (CANNOT_TELL, NOT_REPRODUCED, FAILED, NOT_RUN, OPEN)  # why a fact cannot be told, the best reason first


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim at one place, with our number and the verdict that follows from it."""

    claim: Claim
    verdict: str
    place: Place | None = None  # None where nothing was run
    ours: Estimate | None = None
    remark: str = ""  # why there is no number, or what the seeds could have shown
    level: float = LEVEL  # what its p value must stay below, where it cannot be told


@dataclass(frozen=True, kw_only=True)
class JudgedFact:
    """A fact at one place, with the parts that decided it."""

    fact: Fact
    verdict: str
    place: Place | None = None  # None where nothing was run
    parts: tuple[Judged, ...] = ()  # those included that were not run, and would be measured at this place

    @property
    def title(self) -> str:
        """What is judged in a few words; among checks of theory, the proposition."""
        return self.fact.theory if self._is_theory else self.fact.title

    @property
    def sentence(self) -> str:
        """What is judged as a sentence; among checks of theory, the proposition's parts."""
        if not self._is_theory:
            return self.fact.sentence
        return f"{self.fact.theory}, its mathematics: {' '.join(part.claim.sentence for part in self.parts)}"

    @property
    def _is_theory(self) -> bool:
        return self.place is not None and self.place.kind is Kind.THEORY and bool(self.fact.theory)

    @property
    def headline(self) -> Judged | None:
        """The part that is shown: one with the fact's verdict, or one that explains it; otherwise the first."""
        reasons = EXPLAINS if self.verdict == CANNOT_TELL else (self.verdict,)
        shown = (part for reason in reasons for part in self.parts if part.verdict == reason)
        return next(shown, next(iter(self.parts), None))


@dataclass(frozen=True)
class Ledger:
    """All judged claims, and the facts they add up to."""

    rows: list[Judged]
    facts: list[JudgedFact]


def judge(claims: Iterable[Claim], tables: Mapping[str, Table]) -> Ledger:
    """Judge claims by their experiments' tables, and facts by their parts.

    Args:
        claims: what is to be judged.
        tables: tables by experiment; what is not there was not run.

    Raises:
        KeyError: a table has neither a claim's quantity nor a reason why it is missing.
    """
    rows = [row for claim in claims for row in measured(claim, tables.get(claim.experiment))]
    families: dict[tuple[str, Place | None], list[int]] = {}
    for i, row in enumerate(rows):
        if row.claim.role in (Role.PART, Role.CONTROL):
            of = "controls" if row.claim.role is Role.CONTROL else row.claim.fact.id
            families.setdefault((of, row.place), []).append(i)
    for of, members in ((of, members) for (of, _), members in families.items()):
        alone = of != "controls" and rows[members[0]].claim.fact.needs_all
        for i, row in zip(members, judge_family([rows[i] for i in members], alone), strict=True):
            rows[i] = row
    rows = [judge_family([row], alone=True)[0] if row.claim.role is Role.ASIDE else row for row in rows]
    return Ledger(rows, [fact for one in FACTS for fact in judge_fact(one, rows)])


def measured(claim: Claim, table: Table | None) -> list[Judged]:
    """The claim at every place of its table, with our number; tests wait for their family."""
    if table is None:
        return [Judged(claim=claim, verdict=NOT_RUN)]
    rows = []
    for text, place in table.places.items():
        if claim.quantity.text not in ("", text) or (claim.role is Role.NUMBER and not place.is_the_papers):
            continue
        quantity = claim.quantity.on(text)
        if quantity in table.failed:
            rows.append(Judged(claim=claim, verdict=FAILED, place=place, remark=table.failed[quantity]))
        elif quantity in table.undecided:
            rows.append(Judged(claim=claim, verdict=CANNOT_TELL, place=place, remark=table.undecided[quantity]))
        elif quantity in table.missing:
            rows.append(Judged(claim=claim, verdict=NOT_RUN, place=place, remark=table.missing[quantity]))
        else:
            rows.append(first_look(claim, place, table.quantities[quantity]))
    return rows or [Judged(claim=claim, verdict=NOT_RUN, remark=ELSEWHERE)]


def first_look(claim: Claim, place: Place, ours: Estimate) -> Judged:
    """The claim with our number, judged where no family is needed."""
    verdict = CANNOT_TELL if claim.criterion.is_test else claim.criterion.judge(ours)
    remark = claim.criterion.limit(ours) if verdict == CANNOT_TELL and not claim.criterion.is_test else ""
    return Judged(claim=claim, verdict=verdict, place=place, ours=ours, remark=remark)


def judge_family(rows: Sequence[Judged], alone: bool) -> list[Judged]:
    """Judge the tests of one family.

    Args:
        rows: claims of the family; those without a number stay as they are, and one that failed counts as a test that
            shows nothing, so that a training that diverged makes it no easier for the others.
        alone: whether each part supports by itself, or only after the correction for all.
    """
    found = {i: p for i, row in enumerate(rows) if (p := p_values(row)) is not None}
    family = list(found.values())
    verdicts, level = dict(zip(found, decide(family, alone), strict=True)), level_met(family, alone)
    return [with_verdict(row, verdicts.get(i), level) for i, row in enumerate(rows)]


def p_values(row: Judged) -> PValues | None:
    """The p values of a test that was made; None of what is no test, has too few seeds or was not run."""
    if not row.claim.criterion.is_test:
        return None
    if row.verdict == FAILED:
        return PValues(supports=1.0, opposes=1.0)
    return None if row.ours is None else row.claim.criterion.test(row.ours)


def with_verdict(row: Judged, verdict: str | None, level: float) -> Judged:
    """The claim with the verdict of its family; without one it has too few seeds."""
    if row.ours is None or not row.claim.criterion.is_test:
        return row
    if verdict is not None and verdict != CANNOT_TELL:
        return replace(row, verdict=verdict, remark="")
    limit = row.claim.criterion.limit(row.ours, level)
    return replace(row, verdict=CANNOT_TELL, remark=limit, level=level)


def decide(family: Sequence[PValues], alone: bool) -> list[str]:
    """Verdicts of one family's tests."""
    against = holm([p.opposes for p in family])
    supporting = [p.supports for p in family]
    supporting = supporting if alone else holm(supporting)
    return [
        CONTRADICTED if opposes < LEVEL else REPRODUCED if supports < LEVEL else CANNOT_TELL
        for supports, opposes in zip(supporting, against, strict=True)
    ]


def level_met(family: Sequence[PValues], alone: bool) -> float:
    """The level at which a part that cannot be told would have supported its fact.

    Holm's correction asks the smallest of m p values to stay below a share of 1/m, and of 1/(m - r) once r others have
    passed: what did not pass was held against that.
    """
    if alone:
        return LEVEL
    passed = sum(p < LEVEL for p in holm([p.supports for p in family]))
    return LEVEL / max(1, len(family) - passed)


def judge_fact(fact: Fact, rows: Sequence[Judged]) -> list[JudgedFact]:
    """Judge a fact at every place where one of its parts was run."""
    parts: dict[Place | None, list[Judged]] = {}
    for row in rows:
        if row.claim.fact is fact and row.claim.role is Role.PART:
            parts.setdefault(row.place, []).append(row)
    ran = {place: own for place, own in parts.items() if any(row.verdict != NOT_RUN for row in own)}
    if not ran:
        return [JudgedFact(fact=fact, verdict=NOT_RUN)]
    judged = []
    for place, own in ran.items():
        if place is None:
            continue
        deciding = own + still_to_run(place, parts.get(None, ()))
        verdict = fact_verdict([row.verdict for row in deciding], fact.needs_all)
        judged.append(JudgedFact(fact=fact, verdict=verdict, place=place, parts=tuple(deciding)))
    return judged


def still_to_run(place: Place | None, waiting: Sequence[Judged]) -> list[Judged]:
    """Parts whose experiment was not run, and which would be measured at this place."""
    return [row for row in waiting if place is not None and row.claim.kind is place.kind]


def fact_verdict(verdicts: Sequence[str], needs_all: bool) -> str:
    """The verdict on a fact at one place, from those on its parts; where one is enough, from those that were run."""
    if needs_all:
        for decisive in (CONTRADICTED, FAILED):
            if decisive in verdicts:
                return decisive
        return next((v for v in (REPRODUCED, OPEN) if set(verdicts) == {v}), CANNOT_TELL)
    ran = set(verdicts) - {NOT_RUN}
    if not ran:
        return NOT_RUN
    if REPRODUCED in ran:
        return REPRODUCED
    return next((v for v in (CONTRADICTED, FAILED) if ran == {v}), CANNOT_TELL)
