"""Boosting a pretrained model, against other ways to fine-tune it: what is learned, forgotten, and paid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import FINETUNING
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Paired, Table, exactly
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.finetune import TINY, FinetuneResult, StepTimes, UntouchedResult
from boosted_attention.records import from_json
from boosted_attention.statistics import estimate

TITLE = "Fine-tuning a pretrained model"
COLUMNS = ["perplexity", "other text", "trained (M)", "step time", "seconds per step", "peak memory (GB)"]
BOOSTED, RANDOM_START, LAST_LAYERS = "boosted", "boosted, random start", "boosted, last layers"
LORA, EVERYTHING = "LoRA, as many parameters", "everything"
OVER = {rival: Quantity(f"loss, boosted - {rival}") for rival in (RANDOM_START, LAST_LAYERS, LORA, EVERYTHING)}


def arms(preset: Preset) -> dict[str, Mapping[str, Any]]:
    """Ways to train the model, with their options; the last layers are a third of all.

    Whole matrices get 3e-5, a usual rate; factors of low rank 3e-4, whose product then moves by about as much a step.
    """
    last = "last:10" if preset.finetune.pretrained else "last:1"
    return {
        BOOSTED: {"boost": {}, "lr": 3e-5},
        RANDOM_START: {"boost": {"init": "random"}, "lr": 3e-5},
        LAST_LAYERS: {"boost": {"layers": last}, "lr": 3e-5},
        LORA: {"train": "lora", "lr": 3e-4},
        EVERYTHING: {"train": "all", "lr": 3e-5},
    }


def seeds(preset: Preset) -> tuple[int, ...]:
    return preset.text.seeds[: preset.finetune.n_seeds]


def pretrained(preset: Preset) -> dict[str, str]:
    """Name and hash of the model, wherever it lies."""
    return dict(preset.finetune.pretrained) or TINY


def subject(preset: Preset) -> dict[str, Any]:
    """The model and the texts: the first corpus is learned, a second one watched."""
    corpora = preset.text.corpora
    return {"model": pretrained(preset), "corpus": corpora[0], "watched": corpora[1] if len(corpora) > 1 else None}


def tuning(preset: Preset, arm: Mapping[str, Any], seed: int, name: str) -> Trial:
    """One arm with one seed."""
    size = preset.finetune
    sizes = {key: getattr(size, key) for key in ("steps", "batch_size", "max_len", "held_out")}
    return Trial(
        work="finetune.train",
        config={**subject(preset), "arm": dict(arm), "size": sizes, "seed": seed},
        label=f"fine-tuning, {name}, seed {seed}",
        group=name,
        seconds=expected(preset, 30.0, 1800.0),
    )


def untouched(preset: Preset) -> Trial:
    """The model as it was."""
    size = preset.finetune
    return Trial(
        work="finetune.measure",
        config={**subject(preset), "max_len": size.max_len, "held_out": size.held_out},
        label="the model before fine-tuning",
        seconds=expected(preset, 5.0, 120.0),
    )


def timing(preset: Preset) -> Trial:
    """A step of every arm, in turn in one process: beside other work their times cannot be compared otherwise."""
    size = preset.finetune
    return Trial(
        work="finetune.time",
        config={
            "model": pretrained(preset),
            "arms": [[name, dict(arm)] for name, arm in arms(preset).items()],
            "batch_size": size.batch_size,
            "max_len": size.max_len,
            "repeats": size.timed_steps,
        },
        label="step times of fine-tuning",
        seconds=expected(preset, 10.0, 300.0),
    )


def expected(preset: Preset, tiny: float, real: float) -> float:
    """Seconds a trial takes with the tiny model or a real one."""
    return real if preset.finetune.pretrained else tiny


def trials(preset: Preset) -> list[Trial]:
    tuned = [tuning(preset, arm, seed, name) for seed in seeds(preset) for name, arm in arms(preset).items()]
    return [untouched(preset), *tuned, timing(preset)]


def collect(preset: Preset, results: Results) -> Table:
    corpora, name = preset.text.corpora, pretrained(preset)["name"]
    table = Table(TITLE, COLUMNS, precision=2)
    table.places[""] = Place(kind=Kind.FINETUNE, text=corpora[0], size=name)
    before = from_json(UntouchedResult, results(untouched(preset)))
    table.add_row("as it was", [perplexity([before.new]), perplexity([before.watched]), *[None] * 4])
    found = {
        arm: {s: from_json(FinetuneResult, results(tuning(preset, options, s, arm))) for s in seeds(preset)}
        for arm, options in arms(preset).items()
    }
    times = from_json(StepTimes, results(timing(preset))["measured"])
    for arm, by_seed in found.items():
        tuned = list(by_seed.values())
        table.add_row(
            arm,
            [
                perplexity([r.new for r in tuned]),
                perplexity([r.watched for r in tuned]),
                Cell(exactly(tuned[0].trained_parameters / 1e6)),
                Cell(exactly(times.ratios[arm])),
                Cell(exactly(times.seconds[arm])),
                Cell(estimate([r.measured.peak_memory / 1e9 for r in tuned])),
            ],
        )
    losses = {arm: {seed: r.new for seed, r in by_seed.items()} for arm, by_seed in found.items()}
    table.compare([Paired(quantity, losses[BOOSTED], losses[rival]) for rival, quantity in OVER.items()])
    if len(seeds(preset)) == 1:
        table.notes.append("One seed: how much of a difference is chance is not known.")
    size, rank = preset.finetune, next(iter(found[LORA].values())).rank
    rates = ", ".join(f"{arm} {options['lr']:g}" for arm, options in arms(preset).items())
    table.notes.append(
        f"{name} on {corpora[0]}: {size.steps} steps of {size.batch_size * size.max_len} tokens, the "
        f"same batches in the same order; perplexity over {size.held_out:,} tokens of each "
        f"text; learning rates {rates}; LoRA of rank {rank}. "
        "Step time: of interleaved steps in one process, one thread, as a multiple of the boosted model's, and in "
        "seconds of this machine; peak memory: of the training's process."
    )
    return table


def perplexity(losses: Sequence[float | None]) -> Cell | None:
    known = [loss for loss in losses if loss is not None]
    return None if len(known) < len(losses) else Cell(estimate([math.exp(loss) for loss in known]))


CLAIMS = [
    claim(
        f"finetune-{tagged}",
        FINETUNING,
        OVER[rival],
        below(),
        f"Corrections reach a lower loss on the new text than {said}.",
        paper="suggested",
    )
    for rival, tagged, said in (
        (LORA, "lora", "LoRA with as many parameters"),
        (EVERYTHING, "everything", "training everything"),
    )
]

EXPERIMENT = Experiment(
    name="finetune", title=TITLE, kind=Kind.FINETUNE, order=210, trials=trials, collect=collect, claims=CLAIMS
)
