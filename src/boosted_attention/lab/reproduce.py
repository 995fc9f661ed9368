"""One command's worth of work: run the experiments, collect the tables, judge the claims, write it all down.

OUT/runs/          one directory per run
OUT/results.json   every run's configuration and result, the same bytes for the same work
OUT/timings.json   what each run took, and where it was made
OUT/tables.md      the tables beside the paper's
OUT/claims.json    the ledger
OUT/figures/       PNG and SVG
OUT/report.html    all of it as a page
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from boosted_attention.data.batches import Batches
from boosted_attention.data.tokens import TokenData, prepare
from boosted_attention.files import require_folder, write_atomically, write_json
from boosted_attention.lab.claims import CLAIMS, Judged, judge
from boosted_attention.lab.experiments import EXPERIMENTS, TEXT, experiment
from boosted_attention.lab.language import recipe
from boosted_attention.lab.presets import PRESETS, Preset
from boosted_attention.lab.runner import Executor, Outcome, execute
from boosted_attention.lab.runs import Run, read_result
from boosted_attention.lab.table import Table
from boosted_attention.train.run_config import RunConfig
from boosted_attention.validation import InputError, require, shortened


@dataclass
class Reproduction:
    tables: dict[str, Table]
    incomplete: list[str]  # of the experiments asked for
    ledger: list[Judged]
    outcome: Outcome


FILES = ("results.json", "timings.json", "tables.md", "claims.json", "report.html")


def all_runs(names: Sequence[str], preset: Preset) -> list[Run]:
    """Every distinct run of the experiments."""
    runs = {run.key: run for name in names for run in experiment(name).runs(preset)}
    return list(runs.values())


def needed(name: str, preset: Preset) -> list[Run]:
    """The runs an experiment's table cannot do without."""
    module = experiment(name)
    return getattr(module, "needed", module.runs)(preset)


def reproduce(
    names: Sequence[str],
    preset: Preset,
    out: Path,
    workers: int,
    console: Console | None = None,
    executor: Executor | None = None,
) -> Reproduction:
    """Finish the experiments' runs, then summarise everything that ``out`` holds for this preset."""
    require_folder(out, FILES, ("runs", "figures"))
    texts = [name for name in names if name in TEXT]
    if texts:
        earlier = stored(all_runs(texts, preset), out)
        require_one_version(earlier, out)
        prepare_texts(preset, earlier, console)
    outcome = execute(all_runs(names, preset), out, workers, console=console, executor=executor)
    found = reread(preset, out)
    found.outcome.failures, found.outcome.remarks = outcome.failures, outcome.remarks
    found.incomplete = [name for name in names if not found.outcome.has(experiment(name).runs(preset))]
    write(found, preset, out)
    return found


def reread(preset: Preset, out: Path, *, any_version: bool = False) -> Reproduction:
    """Tables and verdicts from what has been computed, without computing anything."""
    outcome = stored(all_runs(list(EXPERIMENTS), preset), out, any_version=any_version)
    complete = [name for name in EXPERIMENTS if outcome.has(needed(name, preset))]
    of_text = {run.key for name in complete if name in TEXT for run in experiment(name).runs(preset)}
    records = {key: record for key, record in outcome.records.items() if key in of_text}
    require_one_version(Outcome(records, {}, []), out)
    tables = {name: experiment(name).collect(preset, outcome.result) for name in complete}
    return Reproduction(tables, [], [judge(claim, tables) for claim in CLAIMS], outcome)


MOST_EPOCHS = 16  # the paper has 15


def prepare_texts(preset: Preset, earlier: Outcome, console: Console | None) -> None:
    """Tokenize before anything runs: a text that does not serve, or is another than before, is known at once."""
    base = recipe(preset)
    for corpus in preset.text.corpora:
        data = replace(base.data, corpus=corpus)
        if console is not None:
            console.print(f"preparing {corpus}", markup=False)
        tokens = prepare(data, base.model.vocab_size)
        require_enough(base, corpus, tokens)
        others = [
            record["label"]
            for record in earlier.records.values()
            if record["run"]["config"].get("data", {}).get("corpus") == corpus
            and record["result"]["data"] != tokens.fingerprint
        ]
        require(
            not others,
            f"--corpus {corpus} is another text now than in earlier results: {shortened(others)}; use another --out",
        )


def require_enough(base: RunConfig, corpus: str, tokens: TokenData) -> None:
    """The preset's tokens must not be the same few over and over, and the held-out splits must hold something."""
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
        f"--corpus {corpus} is too small for the preset: it trains on {wanted} tokens, the text has {have}, and "
        f"more than {MOST_EPOCHS} passes teach nothing",
    )
    need = 2 if training.protocol == "full" else training.batch_size * length
    for split in ("validation", "test"):
        have = len(tokens.splits[split])
        require(have >= need, f"--corpus {corpus}: its {split} split has {have} tokens; evaluation needs {need}")


def stored(runs: Sequence[Run], out: Path, *, any_version: bool = False) -> Outcome:
    """What has been computed of these runs."""
    outcome = Outcome({}, {}, [])
    for run in runs:
        record, remark = read_result(out / "runs", run, any_version=any_version)
        if record is not None:
            outcome.records[run.key] = record
        outcome.remarks += [remark] if remark else []
    return outcome


def require_one_version(outcome: Outcome, out: Path) -> None:
    """Language models made by different versions may differ by more than their arms do."""
    made: dict[str, list[str]] = {}
    for key, record in outcome.records.items():
        what = ", ".join(f"{name} {record['versions'][name]}" for name in ("boosted-attention", "torch"))
        made.setdefault(what, []).append(key)
    if len(made) > 1:
        few_first = sorted(made.items(), key=lambda item: len(item[1]))
        listed = "; ".join(f"{versions}: {shortened(keys)}" for versions, keys in few_first)
        raise InputError(f"{out} mixes results of different versions: {listed}; use another --out")


def lasting(result: Any) -> Any:
    """A result without what was measured on the machine."""
    return {k: v for k, v in result.items() if k != "measured"} if isinstance(result, dict) else result


def write(found: Reproduction, preset: Preset, out: Path) -> None:
    runs = [run for run in all_runs(list(found.tables), preset) if run.key in found.outcome.records]
    results = {run.key: {"run": run.identity, "result": lasting(found.outcome.result(run))} for run in runs}
    write_json(out / "results.json", results)
    about = ("label", "seconds", "versions", "commit")
    write_json(out / "timings.json", {run.key: {k: found.outcome.records[run.key][k] for k in about} for run in runs})
    text = [
        f"# Tables, preset {preset.name}\n",
        "Ours with the 95 % interval over seeds; one test set serves all models of a table.\n",
    ]
    text += [experiment(name).render(table) for name, table in found.tables.items()]
    write_atomically(out / "tables.md", "\n".join(text))
    settings = {"preset": asdict(preset), "experiments": list(found.tables)}
    write_json(out / "claims.json", {**settings, "claims": ledger_rows(found.ledger)})


def stored_preset(out: Path) -> Preset:
    """The preset of the reproduction that ``out`` holds; the default one if it holds none."""
    path = out / "claims.json"
    if not path.exists():
        return PRESETS["quick"]
    try:
        preset = Preset.from_dict(json.loads(path.read_text(encoding="utf-8"))["preset"])
        recipe(preset)
        return preset
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is damaged; run reproduce with the same --out again") from None


def ledger_rows(ledger: Sequence[Judged]) -> list[dict[str, Any]]:
    rows = []
    for judged in ledger:
        claim = {**asdict(judged.claim), "criterion": str(judged.claim.criterion)}
        ours = None if judged.ours is None else asdict(judged.ours)
        rows.append({**claim, "ours": ours, "verdict": judged.verdict, "scale": judged.scale})
    return rows
