"""The facts as cards, with which the page opens: sentence, verdict, place, numbers and one small picture each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from markupsafe import Markup

from boosted_attention.lab.judging import ledger as told
from boosted_attention.lab.judging.claim import Claim, Role
from boosted_attention.lab.judging.judge import Judged, JudgedFact, Ledger
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.verdicts import REPRODUCED
from boosted_attention.statistics import Estimate

# Controls in the unit of their fact's number, which one axis can show beside it; others are of percents or ranks.
SHARED_UNIT = ("rounds-converged", "rounds-residual", "negative-injected", "lm-flops", "lm-selective")
WIDTH, MARGIN, ROW = 240, 8, 13  # of a picture, in units of its drawing
BARE_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What one small axis shows of a fact."""

    ours: Estimate
    paper: float | None  # the paper's value
    control: Estimate | None
    target: float  # what ours is tested against

    @property
    def values(self) -> list[float]:
        """All numbers that must lie on the axis."""
        shown = [self.ours.low, self.ours.high, self.target]
        shown += [] if self.paper is None else [self.paper]
        return shown + ([] if self.control is None else [self.control.low, self.control.high])

    @property
    def label(self) -> str:
        """The picture in words."""
        paper = [] if self.paper is None else [f"paper {self.paper:.3g}"]
        control = [] if self.control is None else [f"control {number(self.control)}"]
        return "; ".join([f"ours {number(self.ours)}", *paper, *control, f"tested against {self.target:g}"])


def opening(ledger: Ledger) -> list[str]:
    """Say in two sentences what the ledger comes down to: the paper's facts as a whole, then place by place."""
    papers = [fact for fact in ledger.facts if not fact.fact.is_ours]
    ran = [fact for fact in papers if fact.place is not None]
    ours = [fact for fact in told.ran(ledger) if fact.fact.is_ours]
    asked, judged = len({fact.fact.id for fact in papers}), len({fact.fact.id for fact in ran})
    which = f"All {asked} facts of the paper" if judged == asked else f"Of the paper's {asked} facts {judged}"
    first = f"{which} {'was' if judged == 1 else 'were'} judged"
    several = f" in {len(ran)} verdicts, some at more than one place" if len(ran) > judged else ""
    first += f"{several}: {told.tally(fact.verdict for fact in ran)}." if ran else "."
    places = list(dict.fromkeys(fact.place for fact in ran))
    parts = [f"{place}: {told.tally(fact.verdict for fact in ran if fact.place == place)}" for place in places]
    parts += [f"questions of ours: {told.tally(fact.verdict for fact in ours)}"] if ours else []
    return [first, f"{upper_first(scale(ledger))}; {'; '.join(parts)}." if parts else f"{upper_first(scale(ledger))}."]


def scale(ledger: Ledger) -> str:
    """Say whether language models were trained at the paper's own size and text."""
    places = [fact.place for fact in told.ran(ledger) if fact.place is not None and fact.place.kind is Kind.LANGUAGE]
    if not places:
        return "no language model was trained"
    if any(place.is_the_papers for place in places):
        return "language models have the paper's size and text"
    return "no language model has the paper's size and text"


def upper_first(text: str) -> str:
    """Return a text that begins a sentence."""
    return text[:1].upper() + text[1:]


def cards(ledger: Ledger) -> list[dict[str, Any]]:
    """Describe a card for every fact and place where it was run: measured ones, then theory, then questions of ours."""
    seen: set[str] = set()
    found = []
    for judged in sorted(told.ran(ledger), key=lambda judged: (judged.fact.is_ours, is_theory(judged))):
        found.append({**card(judged, ledger.rows), "is_first": judged.fact.id not in seen})
        seen.add(judged.fact.id)
    return found


def card(judged: JudgedFact, rows: Sequence[Judged]) -> dict[str, Any]:
    """Describe the card of one fact at one place."""
    fact, control = judged.fact, control_of(judged, rows)
    theory = is_theory(judged)
    return {
        "id": slug(f"{fact.id}-{told.where(judged.place)}"),
        "fact": fact.id,
        "sentence": f"{fact.theory}, its mathematics" if theory else fact.sentence,
        "behind": fact.title if theory else "",
        "ours": fact.is_ours,
        "section": fact.section,
        "where": told.where(judged.place),
        "verdict": judged.verdict,
        "number": told.shown_fact(judged),
        "paper": told.said_of_fact(judged),
        "control": None if control is None else control_row(control),
        "picture": draw(judged, control),
        "parts": [
            {"id": anchor(part.claim.id, part.place), "sentence": part.claim.sentence, "verdict": part.verdict}
            for part in judged.parts
        ],
    }


def is_theory(judged: JudgedFact) -> bool:
    """Say whether a fact was judged by checks of its proposition."""
    return judged.title == judged.fact.theory


def control_row(control: Judged) -> dict[str, Any]:
    """Describe a control in a card: its number, and where its row is."""
    assert control.ours is not None
    return {
        "id": anchor(control.claim.id, control.place),
        "number": number(control.ours),
        "sentence": control.claim.sentence,
        "verdict": control.verdict,
    }


def control_of(judged: JudgedFact, rows: Sequence[Judged]) -> Judged | None:
    """Return the control of a fact that was measured at its place and in the unit of its number, if there is one."""
    controls = (
        row
        for row in rows
        if row.claim.role is Role.CONTROL
        and row.claim.fact is judged.fact
        and row.place == judged.place
        and row.ours is not None
        and row.claim.id in SHARED_UNIT
    )
    return next(controls, None)


def waiting(ledger: Ledger) -> list[dict[str, Any]]:
    """Describe the facts that were not run anywhere."""
    return [
        {"id": fact.fact.id, "sentence": fact.sentence, "ours": fact.fact.is_ours}
        for fact in ledger.facts
        if fact.place is None
    ]


def draw(judged: JudgedFact, control: Judged | None) -> Markup:
    """Draw a fact as a small SVG: its checks as dots, or its number on an axis; nothing where there is neither."""
    checks = [part for part in judged.parts if part.claim.criterion.rule == "holds"]
    if checks and len(checks) == len(judged.parts):
        return draw_checks([part.verdict == REPRODUCED for part in checks])
    headline = judged.headline
    if headline is None or headline.ours is None:
        return Markup("")
    picture = Picture(
        ours=headline.ours,
        paper=paper_value(headline.claim),
        control=None if control is None else control.ours,
        target=headline.claim.criterion.target,
    )
    return draw_axis(picture)


def draw_checks(hold: Sequence[bool]) -> Markup:
    """Draw one dot per check, filled where it holds."""
    dots = [
        f'<circle class="{"dot" if one else "ring"}" cx="{MARGIN + 16 * i}" cy="10" r="5"/>'
        for i, one in enumerate(hold)
    ]
    return svg(f"{sum(hold)} of {len(hold)} checks hold", 20, f'<g class="s0">{"".join(dots)}</g>')


def draw_axis(picture: Picture) -> Markup:
    """Draw our interval, the paper's value and the control on one axis, with a line where ours is tested against."""
    low, high = min(picture.values), max(picture.values)
    span = high - low or 1.0

    def at(value: float) -> float:
        return MARGIN + (value - low) / span * (WIDTH - 2 * MARGIN)

    y, bottom = 9, 9 + ROW * (picture.control is not None) + 7
    end = "end" if at(picture.target) > WIDTH / 2 else "start"
    shift = -4 if end == "end" else 4
    parts = [
        f'<path class="axis" d="M{MARGIN} {bottom}H{WIDTH - MARGIN}"/>',
        f'<path class="level" d="M{at(picture.target):.1f} 1V{bottom}"/>',
        f'<text class="tick" x="{at(picture.target) + shift:.1f}" y="{bottom + 10}" text-anchor="{end}">'
        f"{picture.target:g}</text>",
        f'<g class="s0">{interval(picture.ours, y, at, "dot")}</g>',
    ]
    if picture.paper is not None:
        x = at(picture.paper)
        parts.append(f'<path class="s1 dot" d="M{x:.1f} {y - 6}l5 6l-5 6l-5 -6z"/>')
    if picture.control is not None:
        parts.append(f'<g class="s7">{interval(picture.control, y + ROW, at, "ring")}</g>')
    return svg(picture.label, bottom + 13, "".join(parts))


def interval(e: Estimate, y: float, at: Callable[[float], float], style: str) -> str:
    """Draw one estimate: a line from end to end of its interval, and its mean."""
    line = f'<path class="line" d="M{at(e.low):.1f} {y}H{at(e.high):.1f}"/>' if e.high > e.low else ""
    return f'{line}<circle class="{style}" cx="{at(e.mean):.1f}" cy="{y}" r="4"/>'


def svg(label: str, height: float, inner: str) -> Markup:
    """Wrap a drawing of the common width; the label is escaped."""
    return Markup(
        f'<svg class="chart small" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">{inner}</svg>'
    )


def paper_value(claim: Claim) -> float | None:
    """Return the paper's value of a claim, where it is one number."""
    if claim.quantity.paper is not None:
        return claim.quantity.paper
    return float(claim.paper) if BARE_NUMBER.fullmatch(claim.paper) else None


def number(e: Estimate) -> str:
    """Write an estimate in few digits, with its interval where it has one."""
    return f"{e.mean:.3g}" if e.n <= 1 else f"{e.mean:.3g} [{e.low:.3g}, {e.high:.3g}]"


def anchor(id: str, place: Place | None) -> str:
    """The name by which a row is linked: that of its claim, and the text where it was measured."""
    return slug(id if place is None or not place.text else f"{id}-{place.text}")


def slug(text: str) -> str:
    """Return a text in the letters of an address."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")
