"""What a reproduction would take: models, parameters, steps, tokens, FLOPs and time, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.table import Table as RichTable

from boosted_attention.data.tokens import DataConfig
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.reproduce import all_trials
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import planned_steps
from boosted_attention.lab.work.timing import step_seconds
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.train.config import TrainingConfig

TIMED_BATCH = 4  # rows; a full batch of a large model would not be quick


def estimate(names: Sequence[str], preset: Preset, tflops: float | None) -> RichTable:
    """A table with one row per model; its numbers are those of one training, except in the last row.

    Args:
        names: experiments.
        preset: how much of everything.
        tflops: TFLOP/s that other hardware sustains, for a column with the time there.
    """
    trials = [trial for trial in all_trials(names, preset) if "training" in trial.config and "data" in trial.config]
    models: dict[str, list[Trial]] = {}
    for trial in trials:
        decided_later = " (at most)" if trial.after else ""  # by another trial's result
        models.setdefault(trial.group + decided_later, []).append(trial)
    table = RichTable(
        box=SIMPLE,
        padding=(0, 1, 0, 0),
        title=f"preset {preset.name} on {', '.join(preset.text.corpora)}: {len(trials)} trainings",
    )
    headings = ["model", "trainings", "parameters", "steps", "tokens", "FLOPs", "here"]
    for heading in headings + ([f"{tflops:g} TFLOP/s"] if tflops else []):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    totals = {"flops": 0.0, "here": 0.0}
    speeds: dict[LanguageModelConfig, float] = {}
    for label, group in models.items():
        config = group[0].config
        model = LanguageModelConfig.from_dict(config["model"])
        training, data = TrainingConfig(**config["training"]), DataConfig(**config["data"])
        steps = planned_steps(model, training, data)
        tokens = steps * training.batch_size * (model.max_len - (training.layout == "rows"))
        flops = 3.0 * model.flops() * tokens
        if model not in speeds:
            speeds[model] = seconds_per_row(model)
        here = speeds[model] * steps * training.batch_size
        totals["flops"] += flops * len(group)
        totals["here"] += here * len(group)
        size = [f"{model.num_params():,}", f"{steps:,}", f"{tokens / 1e6:.0f} M", f"{flops:.1e}"]
        table.add_row(label, str(len(group)), *size, hours(here), *([hours(flops / tflops / 1e12)] if tflops else []))
    table.add_section()
    last = [hours(totals["flops"] / tflops / 1e12)] if tflops else []
    table.add_row("all", str(len(trials)), "", "", "", f"{totals['flops']:.1e}", hours(totals["here"]), *last)
    return table


def hours(seconds: float) -> str:
    """A duration in hours or minutes."""
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def seconds_per_row(model: LanguageModelConfig) -> float:
    """Time of a training step on this machine with all its threads, divided by its rows."""
    seconds = step_seconds({"model": model}, TIMED_BATCH, repeats=3)["model"]
    return min(seconds) / TIMED_BATCH  # the least disturbed one
