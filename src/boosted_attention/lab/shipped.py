"""The results that come with the project, as docs/results.md shows them.

Every folder under results/ is the OUT of a ``reproduce``: this reads them and writes, for each, the facts it decides
and the table of its language models; where the preset lists its experiments, all of their tables with their notes and
pictures.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from boosted_attention.chart import Figure
from boosted_attention.lab.experiments import EXPERIMENTS, finetune
from boosted_attention.lab.experiments.language import controls, main, normalization
from boosted_attention.lab.experiments.language._arms import BOOSTED, STANDARD
from boosted_attention.lab.experiments.language._shared import Relative, located, row_label
from boosted_attention.lab.judging.ledger import counts, facts_markdown
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Table, interval, render, without_bars
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.reproduce import Reproduction, reread, stored_preset
from boosted_attention.lab.trials.store import Outcome
from boosted_attention.lab.work.language import LanguageResult, outcome_of
from boosted_attention.statistics import Estimate
from boosted_attention.validation import require

PICTURES = "results"  # the folder of the pictures, beside the page
# The first of these experiments that is there gives the table, with what the boosted model is compared with.
SOURCES: dict[str, dict[str, Relative]] = {
    controls.EXPERIMENT.name: controls.OVER,
    main.EXPERIMENT.name: {r.b: r for r in (main.OVER_STANDARD, main.OVER_TWICING, main.OVER_FAIR)},
}


def folders(results: Path) -> dict[str, Path]:
    """Every folder of results that ships, by name."""
    require(results.is_dir(), f"{results} is not a folder of results")
    found = {path.parent.name: path.parent for path in sorted(results.glob("*/claims.json"))}
    require(bool(found), f"{results} holds no results: none of its folders has a claims.json")
    return found


def shipped(results: Path) -> str:
    """All folders' facts and tables, as Markdown."""
    return "\n".join(section(name, folder) for name, folder in folders(results).items())


def section(name: str, folder: Path) -> str:
    """One folder's facts and tables, as Markdown."""
    preset = stored_preset(folder)
    found = reread(preset, folder)
    lines = [f"### {name}\n", facts_markdown(found.ledger), *(f"- {line}" for line in counts(found.ledger)), ""]
    source = next((experiment for experiment in SOURCES if experiment in found.tables), None)
    if source is not None:
        lines.append(language_models(found.preset, found, source))
    for experiment in whole(found):
        lines.append(in_full(found.tables[experiment]))
        picture = drawn(found, experiment)
        if picture is not None:
            lines.append(f"![{picture.title}]({PICTURES}/{picture_file(name, picture)})\n")
    return "\n".join(lines)


def whole(found: Reproduction) -> list[str]:
    """The experiments that are there and are shown with notes and picture."""
    return [name for name in (*found.preset.experiments, finetune.EXPERIMENT.name) if name in found.tables]


def drawn(found: Reproduction, experiment: str) -> Figure | None:
    """The figure of an experiment that is there; None where it has none."""
    figure = EXPERIMENTS[experiment].figure
    return None if figure is None else figure(found.preset, found.tables[experiment], found.outcome.result)


def picture_file(name: str, picture: Figure) -> str:
    """The file of a picture, in a folder named as its folder of results."""
    return f"{name}/{picture.name}.svg"


def pictures(results: Path) -> dict[str, Figure]:
    """Every picture that ``shipped`` refers to, by its file."""
    found = {name: reread(stored_preset(folder), folder) for name, folder in folders(results).items()}
    made = [(name, drawn(one, experiment)) for name, one in found.items() for experiment in whole(one)]
    return {picture_file(name, picture): picture for name, picture in made if picture is not None}


def table_of(results: Path, name: str, experiment: str) -> Table | None:
    """The table of an experiment in a folder of results; None where one of them is not there."""
    folder = folders(results).get(name)
    return None if folder is None else reread(stored_preset(folder), folder).tables.get(experiment)


def language_models(preset: Preset, found: Reproduction, source: str) -> str:
    """The table of the language models, as Markdown."""
    table, compared = found.tables[source], SOURCES[source]
    by_text = trained_by_text(preset, found.outcome)
    one = next(iter(by_text.values()))
    seeds = f"{'the first of ' if preset.text.arms else ''}seeds {', '.join(map(str, preset.text.seeds))}"
    lines = [
        f"**Preset `{preset.name}` on {', '.join(preset.text.corpora)}**: {one.steps:,} steps, "
        f"{one.tokens / 1e6:.1f} M tokens, {seeds}, data {', '.join(each.data for each in by_text.values())}, "
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
    return "\n".join([*lines, ""])


def in_full(table: Table) -> str:
    """The table with its comparisons and notes, as the lab renders it, under a heading below the folder's."""
    return f"##{render(table)}"


def trained_by_text(preset: Preset, outcome: Outcome) -> dict[str, LanguageResult]:
    """One training of the main arms on each text that has one which did not diverge.

    All arms of the table have its steps and tokens, and all on its text its data; other tables have other trainings.
    """
    found: dict[str, LanguageResult] = {}
    for trial in main.trials(preset):
        record = outcome.records.get(trial.key)
        one = None if record is None else outcome_of(record.result)
        if isinstance(one, LanguageResult):
            found.setdefault(trial.config["data"]["corpus"], one)
    return found


def torch_of(outcome: Outcome) -> str:
    return next(iter(outcome.records.values())).versions["torch"]


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
