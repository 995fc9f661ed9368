"""What a reproduction would take: models, parameters, steps, tokens, FLOPs and time, before anything runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.box import SIMPLE
from rich.table import Table as RichTable

from boosted_attention.data.tokens import DataConfig
from boosted_attention.lab.experiments.language import forms
from boosted_attention.lab.experiments.language._decisions import assumed
from boosted_attention.lab.presets import PAPERS_SEEDS, Preset
from boosted_attention.lab.reproduce import all_trials, settle
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import planned_steps
from boosted_attention.lab.work.timing import step_seconds
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.train.config import TrainingConfig

FEW_ROWS = 4  # timed of large models, of which a full batch would not be quick
LARGE = 2e11  # FLOPs of a step
FORWARD = 1 / 3  # of a training step's time, per token


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What one training takes."""

    model: LanguageModelConfig
    steps: int
    tokens: int
    flops: float
    seconds: float  # of one core here, evaluations included where the length of their text is known


class Stopwatch:
    """Time of a training step on one core of this machine, measured once for each model."""

    def __init__(self) -> None:
        self.known: dict[tuple[LanguageModelConfig, str, int], float] = {}

    def per_row(self, model: LanguageModelConfig, training: TrainingConfig) -> float:
        """Seconds of a step, divided by its rows."""
        key = (model, training.optimizer, training.batch_size)
        if key not in self.known:
            large = 3 * model.flops() * training.batch_size * model.max_len > LARGE
            self.known[key] = seconds_per_row(model, replace(training, batch_size=FEW_ROWS) if large else training)
        return self.known[key]


def estimate(
    names: Sequence[str], preset: Preset, tflops: float | None, spent: Sequence[tuple[Trial, float]] = ()
) -> RichTable:
    """A table with one row per model, whose numbers are those of one training; then sums by experiment, and of all.

    Args:
        names: experiments.
        preset: how much of everything; what results will decide is assumed.
        tflops: TFLOP/s that other hardware sustains, for a column with the time there.
        spent: finished trainings with the seconds of a processor that each took, for rows that set both side by side.
    """
    trials = trainings(names, assumed(preset))
    watch = Stopwatch()
    takes = {trial.key: taken(trial, watch) for trial in trials}
    table = RichTable(
        box=SIMPLE,
        padding=(0, 1, 0, 0),
        title=f"preset {preset.name} on {', '.join(preset.text.corpora)}: {len(trials)} trainings",
        caption="; ".join(remarks(names, preset)) or None,
    )
    headings = ["model", "trainings", "parameters", "steps", "tokens", "FLOPs", "one core here"]
    for heading in headings + ([f"{tflops:g} TFLOP/s"] if tflops else []):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)

    def cost(*costs: Taken) -> list[str]:
        flops = sum(one.flops for one in costs)
        there = [hours(flops / tflops / 1e12)] if tflops else []
        return [f"{flops:.1e}", hours(sum(one.seconds for one in costs)), *there]

    models: dict[str, list[Trial]] = {}
    for trial in trials:
        decided_later = " (at most)" if trial.after else ""  # by another trial's result
        models.setdefault(trial.group + decided_later, []).append(trial)
    for label, group in models.items():
        one = takes[group[0].key]
        size = [f"{one.model.num_params():,}", f"{one.steps:,}", f"{one.tokens / 1e6:.0f} M"]
        table.add_row(label, str(len(group)), *size, *cost(one))
    table.add_section()
    for name, own in by_experiment(names, preset).items():
        trained = [takes[trial.key] for trial in own if trial.key in takes]
        table.add_row(name, str(len(trained)), "", "", "", *cost(*trained))
    table.add_section()
    table.add_row("all", str(len(trials)), "", "", "", *cost(*takes.values()))
    if preset.text.pilot is not None:
        least = [takes[t.key] for t in all_trials(names, assumed(preset, most=False)) if t.key in takes]
        table.add_row("all, if the pilot asks for no more seeds", str(len(least)), "", "", "", *cost(*least))
    if spent:
        table.add_section()
        planned = [taken(trial, watch) for trial, _ in spent]
        table.add_row("finished, as planned", str(len(spent)), "", "", "", *cost(*planned))
        seconds = hours(sum(seconds for _, seconds in spent))
        table.add_row("finished, as spent", str(len(spent)), "", "", "", "", seconds)
    return table


def spent_on(names: Sequence[str], preset: Preset, out: Path) -> list[tuple[Trial, float]]:
    """The finished trainings of a folder of results, with the seconds of a processor that each took.

    Records of older versions do not have these, and are left out.
    """
    preset, outcome = settle(names, preset, out)
    done = [(trial, outcome.records.get(trial.key)) for trial in trainings(names, preset)]
    return [(t, r.cpu_seconds) for t, r in done if r is not None and r.cpu_seconds is not None]


def trainings(names: Sequence[str], preset: Preset) -> list[Trial]:
    """The trials of experiments that train a model."""
    return [trial for trial in all_trials(names, preset) if {"training", "data"} <= trial.config.keys()]


ASSUMED = "assumed: no grid of rates grows, the pilot asks for the most seeds, and time goes with FLOPs"


ASSUMED_OF_FORMS = "assumed of lm-forms: the costliest forms go on, as many as may, and time goes with FLOPs"


def remarks(names: Sequence[str], preset: Preset) -> list[str]:
    """What is assumed; and that the seeds are ours where all else is the paper's, since two would decide nothing."""
    here, papers = len(preset.text.seeds), len(PAPERS_SEEDS)
    more_seeds = preset.text.is_the_papers and here != papers
    return [
        *([ASSUMED] if preset.text.tuned else []),
        *([ASSUMED_OF_FORMS] if forms.EXPERIMENT.name in names else []),
        *([f"{here} seeds are ours, the paper had {papers}"] if more_seeds else []),
    ]


def by_experiment(names: Sequence[str], preset: Preset) -> dict[str, list[Trial]]:
    """The trials that every experiment adds to those before it."""
    found: dict[str, list[Trial]] = {}
    seen: set[str] = set()
    for name in names:
        found[name] = [trial for trial in all_trials([name], assumed(preset)) if trial.key not in seen]
        seen |= {trial.key for trial in found[name]}
    return found


def taken(trial: Trial, watch: Stopwatch) -> Taken:
    """What a training takes."""
    config = trial.config
    model = LanguageModelConfig.from_dict(config["model"])
    training, data = TrainingConfig(**config["training"]), DataConfig(**config["data"])
    steps = planned_steps(model, training, data)
    tokens = steps * training.batch_size * (model.max_len - (training.layout == "rows"))
    evaluations = 2 + (steps // training.eval_every if training.eval_every and training.eval_unit == "steps" else 0)
    rows = steps * training.batch_size + FORWARD * evaluations * (data.held_out_tokens or 0) / model.max_len
    return Taken(
        model=model,
        steps=steps,
        tokens=tokens,
        flops=3.0 * model.flops() * tokens,
        seconds=watch.per_row(model, training) * rows,
    )


def hours(seconds: float) -> str:
    """A duration in hours or minutes."""
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def seconds_per_row(model: LanguageModelConfig, training: TrainingConfig) -> float:
    """Processor time of a training step with one thread, divided by its rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = step_seconds({"model": model}, training, repeats=3, clock=time.process_time)["model"]
    finally:
        torch.set_num_threads(threads)
    return min(seconds) / training.batch_size  # the least disturbed one
