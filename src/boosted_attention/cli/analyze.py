"""``boosted-attention analyze``: look inside the rounds of a trained run or a boosted model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from boosted_attention.validation import is_count, require

if TYPE_CHECKING:
    from boosted_attention.analysis.examine import Analysis, Names
    from boosted_attention.train.folder import TrainedRun

RENAMED = {"which": "checkpoint"}


def run(
    folder: Path,
    /,
    *,
    against: Path | None = None,
    out: Path | None = None,
    sequences: int = 50,
    pairs: int = 600,
    length: int | None = None,
    checkpoint: str = "best",
    corpus: str | None = None,
    data_root: str | None = None,
    field: str = "text",
    device: str = "cpu",
) -> int:
    """Analyse a run or boosted model: gates, entropy, hull distance, importance, dynamics, what its heads attend to.

    Writes analysis.json, figures, and analysis.html with the round explorer. With --against, also where the run gains
    and loses against another one, usually standard attention trained on the same data.

    Example: boosted-attention analyze runs/mini-boosted-stdlib-0 --against runs/mini-standard-stdlib-0

    Args:
        folder: Folder of the run, or of a boosted model, which needs --corpus.
        against: Folder of a run or model to compare with, trained on the same corpus with the same tokenizer.
        out: Folder for the results; RUN/analysis by default.
        sequences: Number of test sequences.
        pairs: Number of (position, head) pairs per layer for the hull distance.
        length: Tokens per sequence; by default the model's max_len, at most 256.
        checkpoint: Checkpoint of a run to analyse: best or last.
        corpus: Corpus to analyse on instead of the run's own, read with the run's tokenizer.
        data_root: Folder of corpora by name.
        field: Key of the text in .jsonl files, for --corpus.
        device: Device: cpu, cuda or mps.
    """
    from dataclasses import replace

    from rich.console import Console
    from rich.progress import Progress

    from boosted_attention.analysis.examine import examine
    from boosted_attention.analysis.survey import draw_rows
    from boosted_attention.attention.selfcheck import usable_dtypes
    from boosted_attention.cli.loading import load_trained
    from boosted_attention.cli.preparing import text_of
    from boosted_attention.lab.trials.store import versions
    from boosted_attention.records import to_json
    from boosted_attention.report.page import analysis_page
    from boosted_attention.storage.writing import require_folder, staged_files, write_atomically, write_json, writing_to
    from boosted_attention.train.metrics import dynamics_of

    require(is_count(sequences), f"sequences={sequences} must be at least 1")
    require(is_count(pairs), f"pairs={pairs} must be at least 1")
    usable_dtypes(device)
    mine = load_trained(folder, checkpoint, device)
    theirs = None if against is None else load_trained(against, checkpoint, device)
    longest: int = min(run.config.model.max_len for run in (mine, theirs) if run is not None)
    require(longest >= 2, f"a model of max_len={longest} sees one token at a time: there is nothing to analyse")
    length = min(longest, 256) if length is None else length
    require(is_count(length) and 2 <= length <= longest, f"length={length} must lie between 2 and {longest}")
    if theirs is not None:
        require_comparable(mine, theirs)
    out = folder / "analysis" if out is None else out
    require_folder(out, ("analysis.json", "analysis.html"), ("figures",))
    live = Console(stderr=True)
    data = text_of(mine, corpus, data_root, field, live)
    rows = draw_rows(data.splits["test"], length, sequences)
    with Progress(console=live, transient=True, disable=not live.is_terminal) as bar:
        task = bar.add_task(f"analysing {folder.name}", total=1.0)
        found = examine(
            mine.module,
            rows,
            mine.tokenizer.vocabulary(),
            against=None if theirs is None else theirs.module,
            pairs=pairs,
            progress=lambda fraction: bar.update(task, completed=fraction),
        )
    names = names_of(mine, theirs)
    about = {
        "Run": mine.folder.name,
        "Against": "nothing" if theirs is None else theirs.folder.name,
        "Step": str(mine.step),
        "Corpus": corpus or mine.config.data.corpus,
        "Data": data.fingerprint,
        "Versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
    }
    configuration = {"model": mine.config.to_dict(), "against": None if theirs is None else theirs.config.to_dict()}
    found = replace(found, training=dynamics_of(folder), about=about, names=names)
    page = analysis_page(found, names, about, configuration)
    with writing_to(out), staged_files(out) as place:
        write_json(place / "analysis.json", to_json(found))
        write_atomically(place / "analysis.html", page)
        drawn = draw(found, names, place / "figures")
    for line in summary(found, names):
        print(line)
    print(f"written: {out}/analysis.json, analysis.html{drawn}")
    return 0


def names_of(mine: TrainedRun, theirs: TrainedRun | None) -> Names:
    """Name two runs by their attention, or by their folders where that is the same."""
    from boosted_attention.analysis.examine import Names

    kinds = [run.config.model.attention for run in (mine, theirs) if run is not None]
    if theirs is not None and kinds[0] == kinds[1]:
        kinds = [mine.folder.name, theirs.folder.name]
    return Names(model=kinds[0], against=kinds[1] if theirs is not None else "")


def require_comparable(mine: TrainedRun, theirs: TrainedRun) -> None:
    """Refuse to compare models of other tokens or another text, whose differences would mean nothing."""
    require(
        mine.tokenizer.sha256 == theirs.tokenizer.sha256,
        f"against={str(theirs.folder)!r} has another vocabulary ({theirs.tokenizer.vocab_size} tokens, {mine.folder} "
        f"{mine.tokenizer.vocab_size}); compare runs with the same tokenizer",
    )
    require(
        mine.fingerprint == theirs.fingerprint,
        f"against={str(theirs.folder)!r} was trained on another corpus ({theirs.config.data.corpus}, data "
        f"{theirs.fingerprint}) than {mine.folder} ({mine.config.data.corpus}, data {mine.fingerprint}); compare runs "
        "of the same data",
    )


def summary(found: Analysis, names: Names) -> list[str]:
    """The findings in a few lines."""
    from boosted_attention.analysis.survey import by_layer

    importance, gates = found.importance, by_layer(found.gates, 1)
    lines = [f"loss {importance.loss:.4f} over {found.sequences} sequences of {found.length} tokens"]
    for one in importance.layers:
        lines.append(
            f"layer {one.layer}: mean gate {gates[one.layer].mean:.3f}; without its correction the loss changes by "
            f"{one.shown()}"
        )
    if importance.layers:
        lines.append(f"layers worth boosting: {importance.worth_boosting}")
    else:
        lines.append("no layer has a correction")
    if found.corrections is not None:
        lines.append(f"gain over {names.against}, nats per token: {found.corrections.gain.shown()}")
    if found.hull.model.refused:
        lines.append(found.hull.model.refused)
    return lines


def draw(found: Analysis, names: Names, folder: Path) -> str:
    """Draw the figures into files, and say how many or what is missing."""
    from boosted_attention.lab.experiments.language.analysis import PAPER
    from boosted_attention.report.files import write_figures
    from boosted_attention.report.inside import inside_figures

    try:
        drawn = write_figures(inside_figures(found, names, PAPER), folder)
    except ImportError:
        return "; no figures: they need matplotlib (pip install 'boosted-attention[report]')"
    return f", {len(drawn)} figures"
