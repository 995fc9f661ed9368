"""The results that come with the project, as the README shows them.

Every folder under results/ is the OUT of a ``reproduce``: this reads them and writes one table each, and what the
intervals say in words.
"""

from __future__ import annotations

from pathlib import Path

from boosted_attention.lab.presets import Preset
from boosted_attention.lab.reproduce import Reproduction, reread, stored_preset
from boosted_attention.lab.table import Table, interval, render
from boosted_attention.statistics import Estimate
from boosted_attention.validation import require

BEGIN, END = "<!-- results -->\n", "<!-- /results -->\n"
SOURCES = ("lm-controls", "lm-main")  # the first that is there gives the table
AGAINST = {
    "standard": "standard attention",
    "param-fair": "the standard model with as many parameters",
    "FLOP-matched width": "the standard model with as many FLOPs",
    "parallel": "a second attention on x instead of the residual",
}


def shipped(folder: Path) -> str:
    """All folders' tables, as Markdown."""
    require(folder.is_dir(), f"{folder} is not a folder of results")
    places = sorted(path.parent for path in folder.glob("*/claims.json"))
    require(bool(places), f"{folder} holds no results: none of its folders has a claims.json")
    return "\n".join(section(place) for place in places)


def section(place: Path) -> str:
    preset = stored_preset(place)
    found = reread(preset, place, any_version=True)  # they show what made them
    main = next((found.tables[name] for name in SOURCES if name in found.tables), None)
    if main is None and "finetune" in found.tables:
        return finetuned(preset, found.tables["finetune"])
    require(main is not None, f"{place} holds no complete language-model experiment")
    assert main is not None
    example = next(iter(found.outcome.records.values()))
    corpora = ", ".join(preset.text.corpora)
    seeds = ", ".join(map(str, preset.text.seeds))
    training = found_training(found)
    lines = [
        f"**Preset `{preset.name}` on {corpora}**: {training['steps']:,} steps, {training['tokens'] / 1e6:.1f} M "
        f"tokens, seeds {seeds}, data {training['data']}, torch {example['versions']['torch']}.\n",
        "| model | parameters | MFLOPs per token | test perplexity | boosted against it (%) |",
        "|---|---|---|---|---|",
    ]
    lines += rows(main)
    if "lm-normalization" in found.tables:
        lines += post_rows(found.tables["lm-normalization"])
    lines += ["", words(main), ""]
    return "\n".join(lines)


def finetuned(preset: Preset, table: Table) -> str:
    """The table as the lab renders it, under a heading like the others'."""
    corpora = " and ".join(preset.text.corpora)
    body = render(table).split("\n", 2)[2]
    return f"**{table.title}** (preset `{preset.name}`; {corpora}, the second watched only):\n\n{body}"


def found_training(found: Reproduction) -> dict:
    """Steps, tokens and data of one of the runs; all of them have the same."""
    results = (record["result"] for record in found.outcome.records.values())
    return next(r for r in results if isinstance(r, dict) and "order" in r)


def rows(table: Table) -> list[str]:
    against = {c.label.removeprefix("boosted - "): c.difference for c in table.comparisons if is_against(c.label)}
    return [row(name, cells, against.get(name)) for name, cells in table.rows.items()]


def is_against(label: str) -> bool:
    return label.startswith("boosted - ")


def post_rows(table: Table) -> list[str]:
    shown = []
    for name, cells in table.rows.items():
        arm, bar, corpus = name.partition(" | ")
        if arm.endswith(", post"):
            same = table.quantities[f"boosted - standard, post{bar}{corpus}"] if arm == "standard, post" else None
            shown.append(row(name, cells, same))
    return shown


def row(name: str, cells: list, against: Estimate | None) -> str:
    perplexity, _, parameters, flops = cells
    difference = "" if against is None else f"{against.mean:+.2f} [{against.low:+.2f}, {against.high:+.2f}]"
    return (
        f"| {name.replace(' | ', ', ')} | {parameters.ours.mean:.3f} M | {flops.ours.mean:.3f} | "
        f"{interval(perplexity.ours, 2)} | {difference} |"
    )


def words(table: Table) -> str:
    """What the intervals say."""
    said = []
    for comparison in table.comparisons:
        name, bar, corpus = comparison.label.removeprefix("boosted - ").partition(" | ")
        if is_against(comparison.label) and name in AGAINST:
            e = comparison.difference
            verdict = "beats" if e.high < 0 else "loses to" if e.low > 0 else "cannot be told from"
            if e.n < 2:
                verdict = "has one seed, which decides nothing, against"
            where = f" on {corpus}" if bar else ""
            said.append(f"{verdict} {AGAINST[name]}{where} ({e.mean:+.1f} % [{e.low:+.1f}, {e.high:+.1f}])")
    return f"At this scale boosted attention {'; it '.join(said)}. (Each interval on its own, uncorrected.)"


def into(text: str, block: str, what: str) -> str:
    """A page with the part between the marks exchanged for ``block``."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    require(
        bool(begin and end), f"{what} has no place for results: it needs the lines {BEGIN.strip()} and {END.strip()}"
    )
    return before + BEGIN + block + END + after
