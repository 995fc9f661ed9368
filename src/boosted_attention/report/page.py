"""One HTML file that requests nothing and loads no script from elsewhere; the same results give the same bytes.

``report_page`` shows a reproduction, ``analysis_page`` the analysis of one run; both fill ``page.html.j2``. The
template escapes texts from corpora and names of runs; only our own style, script and drawings are inserted as they are.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from boosted_attention.analysis.corrections import Corrections, Example, ExamplePrediction
from boosted_attention.analysis.examine import Analysis, Names
from boosted_attention.analysis.gates import FEWEST_OCCURRENCES, TokenGate
from boosted_attention.analysis.specialisation import KEY_KINDS
from boosted_attention.analysis.survey import by_layer
from boosted_attention.chart import Figure, names
from boosted_attention.lab.experiments import EXPERIMENTS
from boosted_attention.lab.experiments.language.analysis import PAPER, analyses
from boosted_attention.lab.figures import all_figures
from boosted_attention.lab.judging import ledger
from boosted_attention.lab.judging.judge import Judged
from boosted_attention.lab.judging.table import Table, comparison_columns, interval, without_bars
from boosted_attention.lab.judging.verdicts import VERDICTS
from boosted_attention.lab.presets import PRESETS, Preset
from boosted_attention.lab.reproduce import Reproduction, all_trials, reread, stored_preset
from boosted_attention.lab.trials.store import FOLDER, require_layout
from boosted_attention.lab.work.language import analysis_of
from boosted_attention.records import to_json
from boosted_attention.report.cards import anchor, cards, opening, slug, waiting
from boosted_attention.report.inside import inside_figures, maps, visible
from boosted_attention.report.svg import draw_figure
from boosted_attention.storage.locks import exclusive
from boosted_attention.storage.writing import require_folder, write_atomically, writing_to
from boosted_attention.validation import require

NAME = "report.html"
NAMES = Names(model="boosted", against="standard")
Command = Callable[[str, Preset], str]  # the command that computes an experiment with a preset
EMPTY: dict[str, Any] = {
    "opening": [],
    "cards": [],
    "waiting": [],
    "folds": [],
    "tables": [],
    "figures": [],
    "inside": [],
    "explorer": None,
    "commands": "",
    "trials": [],
    "gate_tokens": [],
    "by_head": [],
    "kinds": KEY_KINDS,
    "fewest": FEWEST_OCCURRENCES,
    "examples": [],
    "refusals": [],
    "names": NAMES,
}


def write_report(out: Path, command: Command) -> Path:
    """Build report.html from a folder of results, and return its path.

    Args:
        out: the folder, which the file is written into.
        command: gives the command that computes an experiment with a preset.
    """
    require(out.is_dir(), f"{out} is not a folder of results; reproduce makes one")
    require_layout(out)
    nothing = f"{out} holds no complete experiment; reproduce makes some"
    require((out / FOLDER).is_dir(), nothing)
    require_folder(out, [NAME], option="out")
    path = out / NAME
    with exclusive(out), writing_to(out):
        preset = stored_preset(out)
        found = reread(preset, out)
        require(not found.outcome.remarks, "; ".join(found.outcome.remarks[:1]))
        require(bool(found.tables), nothing)
        write_atomically(path, report_page(found, preset, command))
    return path


def report_page(found: Reproduction, preset: Preset, command: Command) -> str:
    """Make the page of a reproduction: facts, figures, claims, tables, the inside of the rounds, and what was run.

    Args:
        found: tables, verdicts and results.
        preset: the preset they were computed with.
        command: gives the command that computes an experiment with a preset.
    """
    shown = {name: found.tables[name] for name in EXPERIMENTS if name in found.tables}
    rows = found.ledger.rows
    context: dict[str, Any] = {
        "title": "Gradient boosting within a single attention layer: what holds",
        "subtitle": f"The paper's claims, tables and figures, as far as they were computed with preset {preset.name}, "
        "beside its own numbers.",
        "opening": opening(found.ledger),
        "cards": cards(found.ledger),
        "waiting": waiting(found.ledger),
        "folds": by_section([claim_row(judged, shown, preset, command) for judged in rows]),
        "counts": ledger.counts(found.ledger),
        "verdicts": [verdict for verdict in VERDICTS if any(judged.verdict == verdict for judged in rows)],
        "tables": [{**table_context(name, table), "command": command(name, preset)} for name, table in shown.items()],
        "figures": [figure_context(figure) for figure in all_figures(found, preset)],
        "commands": "\n".join(command(name, preset) for name in shown),
        **what_was_run(found, shown, preset),
    }
    analysis = first_analysis(found, preset)
    if analysis is not None:
        corpus, seed = preset.text.corpora[0], preset.text.seeds[0]
        context |= inside_context(analysis, NAMES)
        context["inside_note"] = (
            f"One trained pair, boosted and standard, seed {seed}, on {corpus}; the table above has all seeds."
        )
        context["explorer_note"] = f"The text is from the test split of {corpus}; both models trained on the same data."
    return render(context)


def first_analysis(found: Reproduction, preset: Preset) -> Analysis | None:
    """The analysis that is shown in full: the first seed's, on the first corpus; None where a model diverged."""
    if "analysis" not in found.tables:
        return None
    first = analysis_of(found.outcome.result(analyses(preset, preset.text.corpora[0])[preset.text.seeds[0]]))
    return first if isinstance(first, Analysis) else None


def reproduction_figures(found: Reproduction, preset: Preset) -> tuple[list[Figure], list[Figure]]:
    """Make the experiments' figures, and those of the analysis.

    Args:
        found: tables and results.
        preset: the preset they were computed with.
    """
    analysis = first_analysis(found, preset)
    return all_figures(found, preset), [] if analysis is None else inside_figures(analysis, NAMES, PAPER)


def analysis_page(analysis: Analysis, names: Names, about: Mapping[str, str], configuration: Mapping[str, Any]) -> str:
    """Make the page of one run's analysis: figures, examples and the explorer.

    Args:
        analysis: what was found.
        names: what the model and the one it is compared with are called.
        about: what was analysed, as pairs of a heading and a text.
        configuration: the configurations of the models, shown as JSON.
    """
    context = {
        "title": f"Inside the rounds of {names.model}",
        "subtitle": "Gates, entropy, hull distance, importance and dynamics, and every token of a text.",
        **inside_context(analysis, names),
        "inside_note": f"{analysis.sequences} sequences of {analysis.length} tokens.",
        "explorer_note": "",
        "about": list(about.items()),
        "configuration": json.dumps(configuration, indent=1, sort_keys=True),
    }
    return render(context)


def render(context: Mapping[str, Any]) -> str:
    here = files("boosted_attention.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string((here / "page.html.j2").read_text(encoding="utf-8"))
    picture = base64.b64encode((here / "boosting.svg").read_bytes()).decode()
    own = {
        "style": Markup("".join((here / name).read_text(encoding="utf-8") for name in ("page.css", "chart.css"))),
        "script": Markup((here / "page.js").read_text(encoding="utf-8")),
        "architecture": Markup(
            f'<img alt="One boosted layer: round 0 estimates, round 1 attends to the residual and corrects through a '
            f'gate" src="data:image/svg+xml;base64,{picture}">'
        ),
    }
    return template.render({**EMPTY, **own, **context}) + "\n"


def claim_row(judged: Judged, tables: Mapping[str, Table], preset: Preset, command: Command) -> dict[str, Any]:
    claim, ours = judged.claim, judged.ours
    told = None
    if ours is not None:
        spread = f", standard deviation {ours.std:.4g} over {ours.n} {ours.over}" if ours.n > 1 else ""
        told = f"{ours.mean:.6g} [{ours.low:.6g}, {ours.high:.6g}]{spread}" if ours.n > 1 else f"{ours.mean:.6g}"
    table = tables.get(claim.experiment)
    again = PRESETS["paper"] if table is not None and judged.place is None else preset  # which has that place
    return {
        "id": anchor(claim.id, judged.place),
        "fact": claim.fact.id,
        "section": claim.section,
        "shown_section": ledger.section(judged),
        "sentence": claim.sentence,
        "paper": claim.paper,
        "ours": ledger.shown(judged),
        "verdict": judged.verdict,
        "where": ledger.where(judged.place),
        "remark": judged.remark,
        "criterion": str(claim.criterion),
        "quantity": without_bars(str(claim.quantity)),
        "experiment": claim.experiment,
        "table": None if table is None else table.title,
        "estimate": told,
        "command": command(claim.experiment, again),
    }


def by_section(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The claims' rows in folds, one for each section of the paper, in its order."""
    sections = sorted({row["section"] for row in rows}, key=section_order)
    folds = []
    for name in sections:
        own = [row for row in rows if row["section"] == name]
        folds.append(
            {"name": name, "id": slug(name), "rows": own, "tally": ledger.tally(row["verdict"] for row in own)}
        )
    return folds


def section_order(section: str) -> tuple:
    """The place of a section in the paper; of several, that of the first."""
    parts = section.partition(",")[0].split(".")
    return (tuple((not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts), section)


def table_context(name: str, table: Table) -> dict[str, Any]:
    precision = table.precision
    rows = [
        (
            without_bars(label),
            [
                cell and {"ours": interval(cell.ours, precision), "paper": cell.paper is not None and f"{cell.paper:g}"}
                for cell in cells
            ],
        )
        for label, cells in table.rows.items()
    ]
    compared = comparison_columns(table)
    return {
        "name": name,
        "title": table.title,
        "columns": table.columns,
        "rows": rows,
        "compared": list(compared),
        "comparisons": list(zip(*compared.values(), strict=True)),
        "notes": table.notes,
    }


def figure_context(figure: Figure) -> dict[str, Any]:
    panels = [Markup(panel) for panel in draw_figure(figure)]  # which escapes its texts
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "legend": names(figure),
        "panels": panels,
    }


def inside_context(analysis: Analysis, names: Names) -> dict[str, Any]:
    """What one analysis fills into the template."""
    refused, explorer = analysis.hull.model.refused, analysis.explorer
    context = {
        "inside": [figure_context(figure) for figure in inside_figures(analysis, names, PAPER)],
        "by_head": head_rows(analysis, names),
        "names": names,
        "refusals": [] if refused is None else [refused],
        "gate_tokens": [
            {
                "layer": gate.layer,
                "round": gate.round,
                "widest": gate_tokens(gate.widest_tokens),
                "narrowest": gate_tokens(gate.narrowest_tokens),
            }
            for gate in analysis.gates
        ],
    }
    if analysis.corrections is not None:
        context |= examples_context(analysis.corrections)
    if explorer is not None:
        context["explorer"] = as_script({**to_json(explorer), "names": to_json(names)})
    return context


def gate_tokens(tokens: Sequence[TokenGate]) -> str:
    return ", ".join(f"{visible(t.token)} {t.mean:.3f} ({t.occurrences})" for t in tokens)


def examples_context(found: Corrections) -> dict[str, Any]:
    """The largest gains and losses as rows of a table, with a note above it."""

    def said(prediction: ExamplePrediction) -> str:
        return f"{visible(prediction.top[0].token)} ({prediction.loss:.2f})"

    def row(kind: str, example: Example) -> dict[str, str]:
        return {
            "kind": kind,
            "context": "".join(example.context),
            "target": visible(example.target),
            "model": said(example.model),
            "against": said(example.against),
        }

    return {
        "examples_note": f"Over {found.tokens:,} tokens {100 * found.share_better:.1f} % have a lower loss; the mean "
        f"gain is {found.gain.shown()} nats. Extremes, the largest of any sequence, are not typical.",
        "examples": [*(row("gain", e) for e in found.gains), *(row("loss", e) for e in found.losses)],
    }


def head_rows(analysis: Analysis, names: Names) -> list[dict[str, Any]]:
    """Entropy and kinds of keys of every map, layer by layer."""
    rows = []
    for layer in range(len(analysis.layers)):
        for one in maps(analysis, names):
            entropy = by_layer(one.side(analysis.entropy), one.round).get(layer)
            if entropy is None:
                continue
            found = by_layer(one.side(analysis.specialisation).rows, one.round)[layer]
            shares = [f"{100 * found.mean[kind]:.1f} ({100 * max(found.heads[kind]):.1f})" for kind in KEY_KINDS]
            heads = ", ".join(f"{value:.2f}" for value in entropy.heads)
            rows.append({"layer": layer, "map": one.label, "entropy": heads, "shares": shares})
    return rows


def as_script(value: Any) -> Markup:
    """Write JSON that is safe inside a script element, whatever its texts say."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def what_was_run(found: Reproduction, shown: Mapping[str, Table], preset: Preset) -> dict[str, Any]:
    """Versions, data, seeds and durations, read from the records of the trials."""
    trials = [trial for trial in all_trials(list(shown), preset) if trial.key in found.outcome.records]
    records = [found.outcome.records[trial.key] for trial in trials]
    versions = sorted({", ".join(f"{k} {v}" for k, v in sorted(r.versions.items())) for r in records})
    results = [r.result for r in records if isinstance(r.result, dict)]
    data = sorted({str(result["data"]) for result in results if "data" in result})
    commits = sorted({r.commit[:12] for r in records if r.commit})
    about = [
        ("Preset", preset.name),
        ("Seeds of the retrieval task", f"0 to {preset.seeds - 1}; {preset.long_seeds} in the long controls"),
        ("Seeds of the language models", ", ".join(map(str, preset.text.seeds))),
        ("Text", ", ".join(preset.text.corpora)),
        ("Data fingerprints", ", ".join(data) or "none"),
        ("Versions", "; ".join(versions)),
        ("Commits (+: with changes)", ", ".join(commits) or "none"),
        ("Time on one core", duration(sum(r.seconds for r in records))),
        ("Experiments", ", ".join(f"{name} ({EXPERIMENTS[name].title})" for name in shown)),
    ]
    listed = [
        {
            "label": r.label,
            "key": trial.key,
            "seconds": f"{r.seconds:.1f}",
            "commit": (r.commit or "")[:12],
            "config": json.dumps(trial.config, sort_keys=True),
        }
        for trial, r in zip(trials, records, strict=True)
    ]
    return {"about": about, "trials": listed, "configuration": json.dumps(to_json(preset), indent=1, sort_keys=True)}


def duration(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
