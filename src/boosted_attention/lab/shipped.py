"""The results that come with the project, as docs/results.md shows them.

Every folder under results/ is the OUT of a ``reproduce``: this reads them and writes one table each, and what the
intervals say in words.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from boosted_attention.lab.experiments import finetune
from boosted_attention.lab.experiments.language import controls, main, normalization
from boosted_attention.lab.experiments.language._shared import (
    BOOSTED,
    FAIR,
    STANDARD,
    Relative,
    located,
    row_label,
    short,
)
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Table, interval, render, without_bars
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.reproduce import reread, stored_preset
from boosted_attention.lab.trials.store import Outcome
from boosted_attention.lab.work.language import LanguageResult
from boosted_attention.records import from_json
from boosted_attention.statistics import Estimate
from boosted_attention.validation import require

BEGIN, END = "<!-- results -->\n", "<!-- /results -->\n"
# The first of these experiments that is there gives the table, with what the boosted model is compared with.
SOURCES: dict[str, dict[str, Relative]] = {
    controls.EXPERIMENT.name: controls.OVER,
    main.EXPERIMENT.name: {r.b: r for r in (main.OVER_STANDARD, main.OVER_TWICING, main.OVER_FAIR)},
}
RIVALS = {  # those that the sentence below a table speaks of
    STANDARD: "standard attention",
    FAIR: "the standard model with as many parameters",
    controls.EQUAL_FLOPS: "the standard model with as many FLOPs",
    controls.PARALLEL: "a second attention on x instead of the residual",
}


def shipped(folder: Path) -> str:
    """All folders' tables, as Markdown."""
    require(folder.is_dir(), f"{folder} is not a folder of results")
    places = sorted(path.parent for path in folder.glob("*/claims.json"))
    require(bool(places), f"{folder} holds no results: none of its folders has a claims.json")
    return "\n".join(section(place) for place in places)


def section(place: Path) -> str:
    """One folder's table, as Markdown."""
    preset = stored_preset(place)
    found = reread(preset, place)
    source = next((name for name in SOURCES if name in found.tables), None)
    if source is None and finetune.EXPERIMENT.name in found.tables:
        return finetuned(preset, found.tables[finetune.EXPERIMENT.name])
    require(source is not None, f"{place} holds no complete language-model experiment")
    assert source is not None
    table, compared = found.tables[source], SOURCES[source]
    training = one_training(found.outcome)
    lines = [
        f"**Preset `{preset.name}` on {', '.join(preset.text.corpora)}**: {training.steps:,} steps, "
        f"{training.tokens / 1e6:.1f} M tokens, seeds {', '.join(map(str, preset.text.seeds))}, data {training.data}, "
        f"torch {torch_of(found.outcome)}.\n",
        "| model | parameters | MFLOPs per token | test perplexity | boosted against it (%) |",
        "|---|---|---|---|---|",
    ]
    for corpus in preset.text.corpora:
        against = {rival: known(table, located(preset, corpus, r.quantity)) for rival, r in compared.items()}
        lines += [
            row(label, table.rows[label], against.get(arm))
            for label, arm in rows_on(preset, corpus, table, [*compared, BOOSTED])
        ]
        post = found.tables.get(normalization.EXPERIMENT.name)
        if post is not None:
            lines += post_rows(preset, corpus, post)
    return "\n".join([*lines, "", words(preset, table, compared), ""])


def finetuned(preset: Preset, table: Table) -> str:
    """The table as the lab renders it, under a heading like the others'."""
    corpora = " and ".join(preset.text.corpora)
    body = render(table).split("\n", 2)[2]
    return f"**{table.title}** (preset `{preset.name}`; {corpora}, the second watched only):\n\n{body}"


def one_training(outcome: Outcome) -> LanguageResult:
    """One of the trainings; steps, tokens and data are those of all."""
    records = (r for r in outcome.records.values() if r["trial"]["work"] == "language.train")
    return from_json(LanguageResult, next(records)["result"])


def torch_of(outcome: Outcome) -> str:
    return next(iter(outcome.records.values()))["versions"]["torch"]


def known(table: Table, quantity: Quantity) -> Estimate | None:
    return table.quantities.get(quantity)


def rows_on(preset: Preset, corpus: str, table: Table, arms: Iterable[str]) -> list[tuple[str, str]]:
    """(label, arm) of those arms that a table has on a corpus, in the table's order."""
    labels = {row_label(preset, corpus, arm): arm for arm in arms}
    return [(label, labels[label]) for label in table.rows if label in labels]


def post_rows(preset: Preset, corpus: str, table: Table) -> list[str]:
    """The rows of models under Post-LN."""
    against = {normalization.POST[STANDARD]: known(table, located(preset, corpus, normalization.BOOSTED_POST.quantity))}
    rows = rows_on(preset, corpus, table, normalization.POST.values())
    return [row(label, table.rows[label], against.get(arm)) for label, arm in rows]


def row(label: str, cells: list[Cell | None], against: Estimate | None) -> str:
    perplexity, _, parameters, flops = cells
    assert perplexity is not None
    assert parameters is not None
    assert flops is not None
    difference = "" if against is None else f"{against.mean:+.2f} [{against.low:+.2f}, {against.high:+.2f}]"
    return (
        f"| {without_bars(label)} | {parameters.ours.mean:.3f} M | {flops.ours.mean:.3f} | "
        f"{interval(perplexity.ours, 2)} | {difference} |"
    )


def words(preset: Preset, table: Table, compared: dict[str, Relative]) -> str:
    """What the intervals say, rival by rival."""
    said = []
    for corpus in preset.text.corpora:
        where = f" on {short(preset, corpus)}" if len(preset.text.corpora) > 1 else ""
        for rival, relative in compared.items():
            e = known(table, located(preset, corpus, relative.quantity))
            if rival in RIVALS and e is not None:
                said.append(f"{verb(e)} {RIVALS[rival]}{where} ({e.mean:+.1f} % [{e.low:+.1f}, {e.high:+.1f}])")
    return f"At this scale {BOOSTED} attention {'; it '.join(said)}. (Each interval on its own, uncorrected.)"


def verb(e: Estimate) -> str:
    """How a difference of perplexities reads."""
    if e.n < 2:
        return "has one seed, which decides nothing, against"
    return "beats" if e.high < 0 else "loses to" if e.low > 0 else "cannot be told from"


def into(text: str, block: str, what: str) -> str:
    """A page with the part between the marks exchanged for ``block``."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    require(
        bool(begin and end), f"{what} has no place for results: it needs the lines {BEGIN.strip()} and {END.strip()}"
    )
    return before + BEGIN + block + END + after
