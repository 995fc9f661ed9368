"""``boosted-attention reproduce``: the paper's tables, controls and claims, computed here."""

from __future__ import annotations

import os
from pathlib import Path

from boosted_attention.validation import is_count, require, require_choice


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
    gpus_per_run: int = 0,
    seeds: int | None = None,
    corpus: tuple[str, ...] = (),
    data_root: str | None = None,
    model: Path | None = None,
    device: str = "cpu",
    plan: bool = False,
    tflops: float | None = None,
) -> int:
    """Run experiments, put their tables beside the paper's, and say which of its claims hold.

    Finished runs are kept under OUT/runs and never repeated, so the command can be stopped and called again. Exit
    code 1 if a run failed; it is tried again next time.

    Example: boosted-attention reproduce rounds gates --preset smoke --out /tmp/try
    Example: boosted-attention reproduce lm-main --preset paper --executor slurm --gpus-per-run 1 --device cuda

    Args:
        experiments: names from ``boosted-attention experiments``; by default the synthetic half, lm-main and analysis.
        preset: smoke (seconds), quick (minutes), cpu (hours) or paper (the paper's settings; language models for GPUs).
        out: folder for results, tables, claims, figures and the report.
        workers: runs at a time; as many as there are cores by default, on a cluster up to a thousand.
        executor: where runs are done: local (this machine) or slurm (a job each; OUT must be seen by all nodes).
        partition: of the cluster.
        time: minutes a job may take; a run that needs more is queued again and goes on.
        gpus_per_run: GPUs of a job; set --device cuda with it.
        seeds: seeds per model instead of the preset's.
        corpus: text of the language models instead of the preset's, one or several, as in ``train``.
        data_root: folder of corpora by name; BOOSTED_ATTENTION_DATA by default.
        model: folder of the pretrained model that ``finetune`` trains; a tiny random one by default.
        device: where language models train, such as cuda; one run at a time then, unless --workers says otherwise.
        plan: run nothing; show what the language models would take.
        tflops: for the plan: also the time on hardware that sustains this many TFLOP/s.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    from boosted_attention.files import write_atomically
    from boosted_attention.lab import ledger
    from boosted_attention.lab.experiments import DEFAULT, EXPERIMENTS, experiment
    from boosted_attention.lab.presets import preset as find_preset
    from boosted_attention.lab.reproduce import reproduce
    from boosted_attention.report.page import NAME, report_page

    for name in experiments:
        require_choice("experiment", name, EXPERIMENTS)
    require(workers is None or is_count(workers), f"--workers {workers} must be at least 1")
    require_choice("--executor", executor, ("local", "slurm"))
    require(
        executor == "slurm" or (partition is None and not gpus_per_run),
        "--partition and --gpus-per-run are for --executor slurm",
    )
    require(not gpus_per_run or device != "cpu", "--gpus-per-run: the runs would not use them; add --device cuda")
    if data_root is not None:
        os.environ["BOOSTED_ATTENTION_DATA"] = data_root  # the runs' processes inherit it; it is no part of a result
    chosen, names = find_preset(preset, seeds, corpus), list(dict.fromkeys(experiments)) or list(DEFAULT)
    if device != "cpu":
        from boosted_attention.attention.selfcheck import usable_dtypes
        from boosted_attention.lab.language import DEVICE

        if executor == "local":  # a cluster's devices are not here
            usable_dtypes(device)
            workers = workers or 1
        os.environ[DEVICE] = device
    if model is not None:
        from boosted_attention.lab.tuning import MODEL
        from boosted_attention.pretrained.folders import weights_hash

        os.environ[MODEL] = str(model.absolute())
        chosen = chosen.with_pretrained(model.absolute().name, weights_hash(model))
    console, live = Console(), Console(stderr=True)
    require(tflops is None or (plan and tflops > 0), "--tflops goes with --plan and must be positive")
    if plan:
        from boosted_attention.lab.experiments import TEXT
        from boosted_attention.lab.plan import plan as make_plan

        chosen_texts = [name for name in names if name in TEXT]
        require(bool(chosen_texts), f"--plan is for language models: {', '.join(TEXT)}")
        console.print(make_plan(chosen_texts, chosen, tflops))
        return 0
    where = None
    if executor == "slurm":
        from boosted_attention.lab.slurm import AT_ONCE, SlurmExecutor

        where = SlurmExecutor(out, partition=partition, minutes=time, gpus_per_run=gpus_per_run)
        workers = workers or AT_ONCE
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        found = reproduce(names, chosen, out, workers or cores, console=live, executor=where)
    except KeyboardInterrupt:
        live.print(f"stopped; what is finished is kept in {out}, and the same command goes on from there", markup=False)
        return 130
    for name in names:
        if name in found.tables:
            console.print(Markdown(experiment(name).render(found.tables[name])))
    run_claims = [judged for judged in found.ledger if judged.ours is not None]
    if run_claims:
        console.print(ledger.as_terminal(run_claims))
    console.print(ledger.counts(found.ledger))
    console.print(f"written: {out}/tables.md, claims.json, results.json" + draw(found, chosen, out), markup=False)
    if found.tables:
        write_atomically(out / NAME, report_page(found, chosen))
        console.print(f"the whole of it as a page: {(out / NAME).absolute()}", markup=False, soft_wrap=True)
    for label, problem in found.outcome.failures.items():
        console.print(f"FAILED: {label}: {problem}", markup=False)
    if found.incomplete:
        console.print(f"incomplete, run the command again: {', '.join(found.incomplete)}")
    return 1 if found.outcome.failures else 0


def draw(found, chosen, out: Path) -> str:
    """Draw the figures, or say what is missing."""
    from boosted_attention.report.files import write_figures
    from boosted_attention.report.page import reproduction_figures

    try:
        drawn = write_figures([f for group in reproduction_figures(found, chosen) for f in group], out / "figures")
    except ImportError:
        return "; no figures: they need matplotlib (pip install 'boosted-attention[report]')"
    return f", {len(drawn)} figures" if drawn else ""
