"""Verdicts on record: what folders of results say of a kind of layer, read from claims.json without judging anew."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from boosted_attention.lab.judging.facts import (
    BEATS_EQUAL_PARAMETERS,
    BEATS_STANDARD,
    BEATS_TWICING,
    EQUALS_WIDTH,
    FEWER_STEPS,
    FINETUNING,
)
from boosted_attention.lab.judging.verdicts import NOT_RUN
from boosted_attention.storage.documents import DamagedError
from boosted_attention.storage.sealing import read_sealed

CORRECTIONS = "corrections"  # of pretrained models, beside the catalog's names
ABOUT = {  # facts on language models, by the kind of layer they are about
    "boosted": (BEATS_STANDARD, BEATS_EQUAL_PARAMETERS, EQUALS_WIDTH, BEATS_TWICING, FEWER_STEPS),
    "twicing": (BEATS_TWICING,),
    CORRECTIONS: (FINETUNING,),
}


class RecordedVerdict(NamedTuple):
    """A statement, where it was measured, and what came of it."""

    statement: str
    place: str
    verdict: str


def recorded_verdicts(results: Path, kind: str) -> list[RecordedVerdict]:
    """Return the verdicts on record for a kind of layer; none where there are no results, or they are damaged.

    Args:
        results: folder with folders of results, each made by ``reproduce``.
        kind: a name of the catalog, or CORRECTIONS.
    """
    wanted = [fact.id for fact in ABOUT.get(kind, ())]
    found = []
    for path in sorted(results.glob("*/claims.json")):
        try:
            document = read_sealed(path)
            rows = [row for row in document["facts"] if row["id"] in wanted and row["verdict"] != NOT_RUN]
            preset = document["preset"]["name"]
            rows.sort(key=lambda row: wanted.index(row["id"]))
            found += [
                RecordedVerdict(row["sentence"], f"{row['where']} (preset {preset})", row["verdict"]) for row in rows
            ]
        except (DamagedError, KeyError, TypeError):
            continue
    return found
