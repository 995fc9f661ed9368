"""``boosted-attention reproduce``: the paper's tables, controls and claims, computed here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from boosted_attention.validation import is_count, require, require_choice

if TYPE_CHECKING:
    from rich.console import Console

    from boosted_attention.lab.presets import Preset
    from boosted_attention.lab.reproduce import Reproduction
    from boosted_attention.lab.trials.runner import Executor

RENAMED = {"minutes": "time", "folder": "out"}


def run(
    experiments: tuple[str, ...] = (),
    /,
    *,
    preset: str = "quick",
    out: Path = Path("out"),
    workers: int | None = None,
    executor: str = "local",
    partition: str | None = None,
    time: int = 240,
    gpus_per_trial: int = 0,
    seeds: int | None = None,
    corpus: tuple[str, ...] = (),
    rates: tuple[float, ...] = (),
    data_root: str | None = None,
    model: Path | None = None,
    device: str = "cpu",
    plan: bool = False,
    tflops: float | None = None,
) -> int:
    """Run experiments, put their tables beside the paper's, and say which of its claims hold.

    Finished trials are kept under OUT/trials and never repeated, so the command can be stopped and called again. Exit
    code 1 if a trial failed; it is tried again next time.

    Example: boosted-attention reproduce rounds gates --preset smoke --out /tmp/try

    Example: boosted-attention reproduce lm-main --preset paper --executor slurm --gpus-per-trial 1 --device cuda

    Args:
        experiments: names from ``boosted-attention experiments``; by default the synthetic half, lm-main and analysis;
            with preset arena its language models, the most important first; with preset forms lm-forms; with preset
            rounds lm-related, lm-stagewise and lm-halting.
        preset: effort: smoke (seconds), quick (minutes), cpu (hours), arena (half a day: tuned language
            models with many seeds), forms (half a day: a tournament of forms of attention), rounds (hours: related
            systems, stages, halting), look (hours: the paper's model, once) or paper (its own settings, for GPUs).
        out: folder for results, tables, claims, figures and the report.
        workers: trials at a time; as many as there are cores by default, on a cluster up to a thousand.
        executor: place of the trials: local (this machine) or slurm (a job each; OUT must be seen by all nodes).
        partition: partition of the cluster.
        time: minutes a job may take; a trial that needs more is queued again and goes on.
        gpus_per_trial: GPUs of a job; set --device cuda with it.
        seeds: seeds per model instead of the preset's.
        corpus: texts of the language models instead of the preset's, as in ``train``.
        rates: factors on all learning rates that lm-sweep tries instead of the preset's, such as 0.5 1 2.
        data_root: folder of corpora by name; BOOSTED_ATTENTION_DATA by default.
        model: folder of the pretrained model that ``finetune`` trains; a tiny random one by default.
        device: device of the language models, such as cuda; one trial at a time then, unless --workers says otherwise.
        plan: estimate of what the language models would take, without running them, beside what finished ones took.
        tflops: TFLOP/s that other hardware sustains, for the plan.
    """
    from rich.console import Console

    from boosted_attention.data.corpora import corpora_folder
    from boosted_attention.lab.experiments import DEFAULT, EXPERIMENTS
    from boosted_attention.lab.presets import preset as find_preset
    from boosted_attention.lab.reproduce import reproduce
    from boosted_attention.lab.trials.trial import Settings

    for name in experiments:
        require_choice("experiments", name, EXPERIMENTS)
    require(workers is None or is_count(workers), f"workers={workers} must be at least 1")
    require_choice("executor", executor, ("local", "slurm"))
    require(
        executor == "slurm" or (partition is None and not gpus_per_trial),
        "partition= and gpus_per_trial= are for executor=slurm",
    )
    require(not gpus_per_trial or device != "cpu", "gpus_per_trial=: the trials would not use them; add device=cuda")
    require(tflops is None or (plan and tflops > 0), "tflops= goes with plan=True and must be positive")
    chosen = find_preset(preset, seeds, corpus).with_rates(rates)
    names = list(dict.fromkeys(experiments)) or list(chosen.experiments or DEFAULT)
    require_suited(names, chosen, seeds, corpus, rates)
    console, live = Console(), Console(stderr=True)
    if plan:
        show_estimate(names, chosen, tflops, out, console)
        return 0
    if device != "cpu" and executor == "local":  # a cluster's devices are not here
        from boosted_attention.attention.selfcheck import usable_dtypes

        usable_dtypes(device)
        workers = workers or 1
    if model is not None:
        from boosted_attention.pretrained.folders import weights_hash

        chosen = chosen.with_pretrained(model.absolute().name, weights_hash(model))
    where, at_once = chosen_executor(executor, out, partition, time, gpus_per_trial)
    root = corpora_folder(data_root)  # settled here: other machines may not have the variable
    settings = Settings(
        device=device,
        data_root=None if root is None else str(root.absolute()),
        model=None if model is None else str(model.absolute()),
    )
    try:
        found = reproduce(
            names,
            chosen,
            out,
            workers or at_once,
            settings=settings,
            console=live,
            executor=where,
            publish=lambda found: show(found, names, out, console),
        )
    except KeyboardInterrupt:
        live.print(f"stopped; what is finished is kept in {out}, and the same command goes on from there", markup=False)
        return 130
    return 1 if found.outcome.failures else 0


def require_suited(
    names: Sequence[str], chosen: Preset, seeds: int | None, corpus: Sequence[str], rates: Sequence[float]
) -> None:
    """Raise InputError where experiments would train nothing, or an option would change nothing."""
    from boosted_attention.lab.experiments import LANGUAGE

    for name in names:
        require(
            not chosen.text.arms or name not in LANGUAGE or name in chosen.experiments,
            f"experiments={name!r}: preset={chosen.name!r} has seeds for models of {', '.join(chosen.experiments)} "
            "alone; use preset='cpu'",
        )
    require(
        names != ["lm-forms"] or (seeds is None and not rates and len(corpus) < 2),
        "seeds=, rates= and a second corpus= change nothing here: the stages of lm-forms have seeds and rates of their "
        "own, and one text",
    )


def show_estimate(names: Sequence[str], chosen: Preset, tflops: float | None, out: Path, console: Console) -> None:
    """Print what the language models would take, and what those that are finished took."""
    from boosted_attention.lab.estimate import estimate, spent_on
    from boosted_attention.lab.experiments import LANGUAGE

    texts = [name for name in names if name in LANGUAGE]
    require(bool(texts), f"plan=True is for language models: {', '.join(LANGUAGE)}")
    console.print(estimate(texts, chosen, tflops, spent_on(texts, chosen, out)))


def chosen_executor(
    executor: str, out: Path, partition: str | None, minutes: int, gpus_per_trial: int
) -> tuple[Executor | None, int]:
    """Where trials are done, and how many at a time."""
    if executor == "slurm":
        from boosted_attention.lab.trials.slurm import AT_ONCE, SlurmExecutor

        return SlurmExecutor(out, partition=partition, minutes=minutes, gpus_per_trial=gpus_per_trial), AT_ONCE
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return None, cores


def show(found: Reproduction, names: Sequence[str], out: Path, console: Console) -> None:
    """Print tables and verdicts, write figures and page, and name what failed."""
    from rich.markdown import Markdown

    from boosted_attention.cli.commands import claims_command, reproduce_command
    from boosted_attention.lab.judging import ledger
    from boosted_attention.lab.judging.table import render
    from boosted_attention.report.page import NAME, report_page
    from boosted_attention.storage.writing import write_atomically

    for name in names:
        if name in found.tables:
            console.print(Markdown(render(found.tables[name])))
    if ledger.ran(found.ledger):
        console.print(ledger.facts_table(found.ledger))
    for line in ledger.counts(found.ledger):
        console.print(line, markup=False)
    console.print(f"every claim: {claims_command(out)}", markup=False)
    console.print(f"written: {out}/tables.md, claims.json, results.json" + draw(found, out), markup=False)
    if found.tables:
        write_atomically(out / NAME, report_page(found, found.preset, command=reproduce_command))
        console.print(f"the whole of it as a page: {(out / NAME).absolute()}", markup=False, soft_wrap=True)
    for label, problem in found.outcome.failures.items():
        console.print(f"FAILED: {label}: {problem}", markup=False)
    if found.incomplete:
        console.print(f"incomplete, run the command again: {', '.join(found.incomplete)}")


def draw(found: Reproduction, out: Path) -> str:
    """Draw the figures, or say what is missing."""
    from boosted_attention.report.files import write_figures
    from boosted_attention.report.page import reproduction_figures

    figures = [figure for group in reproduction_figures(found, found.preset) for figure in group]
    try:
        drawn = write_figures(figures, out / "figures")
    except ImportError:
        return "; no figures: they need matplotlib (pip install 'boosted-attention[report]')"
    return f", {len(drawn)} figures" if drawn else ""
