"""Claims, tables and facts made by hand."""

from dataclasses import replace

from boosted_attention.lab.judging.claim import Claim, Role, claim
from boosted_attention.lab.judging.facts import A_FORM_PAYS, BEATS_STANDARD, Fact
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.judging.verdicts import Criterion, below
from boosted_attention.statistics import Estimate

SMALL = Place(kind=Kind.LANGUAGE, text="wikitext-2", size="0.4 M")
PAPERS = Place(kind=Kind.LANGUAGE, text="wikitext-103", size="8.7 M", is_the_papers=True)


def seeds(mean, std=1.0, n=8):
    return Estimate(mean=mean, low=mean - 1, high=mean + 1, std=std, n=n)


def named(
    id: str,
    quantity: Quantity | None = None,
    criterion: Criterion | None = None,
    fact: Fact = BEATS_STANDARD,
    role: Role | None = None,
) -> Claim:
    made = claim(id, fact, quantity or Quantity(id), criterion or below(), f"{id}.", paper="-6.0 %", role=role)
    return replace(made, experiment="made", kind=Kind.LANGUAGE)


def table_of(estimates: dict[Quantity, Estimate], *places: Place) -> Table:
    table = Table("made", [])
    table.places = {place.text: place for place in places or (SMALL,)}
    table.quantities = dict(estimates)
    return table


ANY = A_FORM_PAYS  # a fact that needs one part only
