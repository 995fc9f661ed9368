"""Reproduction: do the trials of experiments, collect the tables, judge the claims, write the files.

OUT/trials/        one directory per trial
OUT/results.json   every trial's configuration and result, the same bytes for the same work
OUT/timings.json   what each trial took, and where it was made
OUT/tables.md      the tables beside the paper's
OUT/claims.json    the ledger, sealed, with size and sha256 of results.json and tables.md
OUT/figures/       PNG and SVG
OUT/report.html    all of it as a page
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from boosted_attention.data.batches import Batches
from boosted_attention.data.tokens import TokenData, prepare
from boosted_attention.lab.claims import CLAIMS
from boosted_attention.lab.decisions import settled
from boosted_attention.lab.experiments import EXPERIMENTS, LANGUAGE, TEXTUAL, experiment
from boosted_attention.lab.judging.judge import Ledger, judge
from boosted_attention.lab.judging.ledger import as_rows
from boosted_attention.lab.judging.table import Table, render
from boosted_attention.lab.presets import PRESETS, Preset, UndecidedError
from boosted_attention.lab.trials.runner import Executor, Follow, execute
from boosted_attention.lab.trials.store import FOLDER, Outcome, require_layout, require_one_torch, stored
from boosted_attention.lab.trials.trial import Settings, Trial
from boosted_attention.records import to_json
from boosted_attention.storage.documents import DamagedError, is_there
from boosted_attention.storage.locks import exclusive
from boosted_attention.storage.sealing import listing, read_sealed, write_sealed
from boosted_attention.storage.writing import require_folder, write_atomically, write_json, writing_to
from boosted_attention.train.run_config import RunConfig
from boosted_attention.validation import InputError, require, shortened

FILES = ("results.json", "timings.json", "tables.md", "claims.json", "report.html")


@dataclass
class Reproduction:
    """What a folder of results holds: tables, verdicts, and the records behind them."""

    tables: dict[str, Table]
    incomplete: list[str]  # of the experiments asked for
    ledger: Ledger
    outcome: Outcome
    preset: Preset  # with what the results decided


def all_trials(names: Sequence[str], preset: Preset) -> list[Trial]:
    """Every distinct trial of the experiments, as far as results have decided what there is to do.

    Where a preset has an order of importance, trials are ranked by the first experiment that needs them, and those of
    further texts come last.
    """
    trials: dict[str, Trial] = {}
    for rank, name in enumerate(names):
        for trial in known_trials(name, preset):
            further = trial.config.get("data", {}).get("corpus", preset.text.corpora[0]) != preset.text.corpora[0]
            own = rank + further * len(names) if preset.experiments else 0
            trials.setdefault(trial.key, replace(trial, rank=own))
    return list(trials.values())


def following(names: Sequence[str], preset: Preset) -> Follow:
    """Return what lists every trial that results ask for; listed anew only when they decided more, since it is slow."""
    listed: list[tuple[Preset, list[Trial]]] = []

    def follow(so_far: Outcome) -> list[Trial]:
        now = settled(preset, so_far.result)
        if not listed or listed[-1][0] != now:
            listed[:] = [(now, all_trials(names, now))]
        return listed[-1][1]

    return follow


def known_trials(name: str, preset: Preset) -> list[Trial]:
    """The trials of an experiment; those of the one that decides about it, while that is not finished."""
    try:
        return experiment(name).trials(preset)
    except UndecidedError as waiting:
        return known_trials(waiting.experiment, preset)


def is_complete(trials: Callable[[Preset], list[Trial]], preset: Preset, outcome: Outcome) -> bool:
    """Whether all trials are known and done."""
    try:
        return outcome.has(trials(preset))
    except UndecidedError:
        return False


def with_table(preset: Preset, outcome: Outcome) -> list[str]:
    """The experiments that have what their table needs.

    Where a preset lists its experiments, their trainings may be all that another one needs, of which little is then
    left to show: another one has a table only if something was done for it that no listed one has.
    """
    complete = [name for name, e in EXPERIMENTS.items() if is_complete(e.required, preset, outcome)]
    if not preset.experiments:
        return complete
    listed = {trial.key for name in preset.experiments for trial in known_trials(name, preset)}
    own = outcome.records.keys() - listed
    return [
        name
        for name in complete
        if name in preset.experiments or any(trial.key in own for trial in known_trials(name, preset))
    ]


def settle(names: Sequence[str], preset: Preset, out: Path) -> tuple[Preset, Outcome]:
    """The preset with what stored results decide, and the results of the experiments that there are with it."""
    outcome = stored(all_trials(names, preset), out)
    while (now := settled(preset, outcome.result)) != preset:
        more = stored(all_trials(names, now), out)
        outcome.records |= more.records  # those that decided stay, also where no experiment asks for them any more
        outcome.remarks = list(dict.fromkeys(outcome.remarks + more.remarks))
        preset = now
    return preset, outcome


def reproduce(
    names: Sequence[str],
    preset: Preset,
    out: Path,
    workers: int,
    *,
    settings: Settings | None = None,
    console: Console | None = None,
    executor: Executor | None = None,
    publish: Callable[[Reproduction], None] = lambda found: None,
) -> Reproduction:
    """Finish the trials of experiments, then summarise everything that ``out`` holds for this preset.

    Args:
        names: experiments.
        preset: how much of everything.
        out: folder of results; one command at a time may write to it.
        workers: trials at a time.
        settings: device, data and model that the trials use.
        console: where progress is shown.
        executor: where trials are done; this machine by default.
        publish: shows what was found and writes further files, while the folder is still held.
    """
    require_folder(out, FILES, (FOLDER, "figures"))
    require_layout(out)
    settings = settings or Settings()
    with exclusive(out):
        trained = [name for name in names if name in TEXTUAL]
        if trained:
            preset, earlier = settle(trained, preset, out)
            require_one_torch(earlier, out)
            if any(name in LANGUAGE for name in trained):
                prepare_texts(preset, earlier, settings, console)
        outcome = execute(
            all_trials(names, preset),
            out,
            workers,
            settings=settings,
            console=console,
            executor=executor,
            follow=following(names, preset),
        )
        found = reread(preset, out)
        found.outcome.failures, found.outcome.remarks = outcome.failures, outcome.remarks
        found.incomplete = [n for n in names if not is_complete(experiment(n).trials, found.preset, found.outcome)]
        with writing_to(out):
            write(found, found.preset, out)
            publish(found)
    return found


def reread(preset: Preset, out: Path) -> Reproduction:
    """Make tables and verdicts from what has been computed, without computing anything."""
    preset, outcome = settle(list(EXPERIMENTS), preset, out)
    complete = with_table(preset, outcome)
    of_text = {trial.key for name in complete if name in TEXTUAL for trial in known_trials(name, preset)}
    records = {key: record for key, record in outcome.records.items() if key in of_text}
    require_one_torch(Outcome(records), out)
    tables = {name: experiment(name).table(preset, outcome.result, outcome.took) for name in complete}
    return Reproduction(tables, [], judge(CLAIMS, tables), outcome, preset)


MOST_EPOCHS = 16  # the paper has 15


def prepare_texts(preset: Preset, earlier: Outcome, settings: Settings, console: Console | None) -> None:
    """Tokenize before anything runs, so that a text that does not serve, or has changed, is known at once."""
    base = preset.text.configuration()
    for corpus in preset.text.corpora:
        data = replace(base.data, corpus=corpus, data_root=settings.data_root)
        if console is not None:
            console.print(f"preparing {corpus}", markup=False)
        tokens = prepare(data, base.model.vocab_size)
        require_enough(base, corpus, tokens)
        others = [
            record.label
            for record in earlier.records.values()
            if record.config.get("data", {}).get("corpus") == corpus
            and data_of(record.result) not in (None, tokens.fingerprint)
        ]
        require(
            not others,
            f"corpus={corpus!r} is another text now than in earlier results: {shortened(others)}; use another folder",
        )


def data_of(result: dict[str, Any]) -> str | None:
    """Return the fingerprint of the text behind a result; None where nothing was trained."""
    trained = result.get("trained", result)
    return None if trained is None else trained["data"]


def require_enough(base: RunConfig, corpus: str, tokens: TokenData) -> None:
    """Raise InputError unless the text is long enough for the preset, in all its splits."""
    training, length = base.training, base.model.max_len
    batches = Batches(
        tokens.splits["train"],
        layout=training.layout,
        batch_size=training.batch_size,
        length=length,
        seed=training.seed,
    )
    wanted = training.total_steps(batches.steps_per_epoch) * training.batch_size * length
    have = len(tokens.splits["train"])
    require(
        wanted <= MOST_EPOCHS * have,
        f"corpus={corpus!r} is too small for the preset: it trains on {wanted} tokens, the text has {have}, and "
        f"more than {MOST_EPOCHS} passes teach nothing",
    )
    need = 2 if training.protocol == "full" else training.batch_size * length
    for split in ("validation", "test"):
        have = len(tokens.splits[split])
        require(have >= need, f"corpus={corpus!r}: its {split} split has {have} tokens; evaluation needs {need}")


def lasting(result: Any) -> Any:
    """A result without what was measured on the machine, whose keys begin with that word."""
    if not isinstance(result, dict):
        return result
    return {key: lasting(value) for key, value in result.items() if not key.startswith("measured")}


def write(found: Reproduction, preset: Preset, out: Path) -> None:
    """Write everything that is not a picture."""
    trials = [trial for trial in all_trials(list(found.tables), preset) if trial.key in found.outcome.records]
    results = {t.key: {"trial": t.identity, "result": lasting(found.outcome.result(t))} for t in trials}
    write_json(out / "results.json", results)
    records = {t.key: found.outcome.records[t.key] for t in trials}
    timings = {
        key: {"label": r.label, "seconds": r.seconds, "versions": r.versions, "commit": r.commit}
        for key, r in records.items()
    }
    write_json(out / "timings.json", timings)
    text = [
        f"# Tables, preset {preset.name}\n",
        "Ours with the 95 % interval over seeds; one test set serves all models of a table.\n",
    ]
    text += [render(table) for table in found.tables.values()]
    write_atomically(out / "tables.md", "\n".join(text))
    about_it = {"preset": to_json(preset), "experiments": list(found.tables)}
    sealed = listing(out, ("results.json", "tables.md"))
    write_sealed(out / "claims.json", {**about_it, **as_rows(found.ledger)}, sealed)


def stored_preset(out: Path) -> Preset:
    """The preset of the reproduction that ``out`` holds; the default one if it holds none."""
    require_layout(out)
    path = out / "claims.json"
    if not is_there(path):
        return PRESETS["quick"]
    try:
        return Preset.from_dict(read_sealed(path)["preset"])
    except DamagedError as problem:
        raise InputError(f"{problem}; reproduce into the same folder writes it again") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is damaged; reproduce into the same folder writes it again") from None
