"""Runs of the fine-tuning experiment: one pretrained model, one way to train it, one seed each, resumable."""

from __future__ import annotations

import os
import resource
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from boosted_attention.data.tokenizer import Tokenizer, byte_tokenizer
from boosted_attention.data.tokens import DataConfig, TokenData, prepare
from boosted_attention.lab.language import Reporter
from boosted_attention.lab.presets import PRESETS, Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.timing import ratios_to_first, step_seconds
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.evaluation import evaluate
from boosted_attention.train.folder import load_run
from boosted_attention.train.metrics import evaluation_rows
from boosted_attention.train.run_config import RunConfig
from boosted_attention.train.trainer import Trainer
from boosted_attention.validation import require

MODEL = "BOOSTED_ATTENTION_MODEL"  # in the environment: where the model lies, which is no part of a result
TINY = {"name": "a tiny random Llama", "weights": ""}  # unless another is named


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How much of it."""

    steps: int
    batch_size: int
    max_len: int
    held_out: int  # tokens of each evaluation
    n_seeds: int  # of the preset's; more on request


SIZES = {
    "smoke": Tuning(steps=3, batch_size=2, max_len=16, held_out=200, n_seeds=2),
    "quick": Tuning(steps=40, batch_size=2, max_len=64, held_out=2000, n_seeds=2),
    "cpu": Tuning(steps=200, batch_size=1, max_len=512, held_out=8192, n_seeds=1),
    "paper": Tuning(steps=2000, batch_size=8, max_len=1024, held_out=131_072, n_seeds=2),
}


def seeds(preset: Preset) -> tuple[int, ...]:
    """Fewer than the small models have, unless a number was asked for."""
    asked = preset.text.seeds != PRESETS[preset.name].text.seeds
    return preset.text.seeds if asked else preset.text.seeds[: SIZES[preset.name].n_seeds]


def tuning_run(preset: Preset, arm: Mapping[str, Any], seed: int, name: str) -> Run:
    """One arm: options of ``FinetuneConfig`` and a learning rate. The first corpus is learned, a second one watched."""
    size = {key: value for key, value in vars(SIZES[preset.name]).items() if key != "n_seeds"}
    return Run(
        work=f"{__name__}:tune_model",
        config={**subject(preset), "arm": dict(arm), "size": size, "seed": seed},
        label=f"fine-tuning, {name}, seed {seed}",
        seconds=seconds(preset, 2.0, 30.0, 1800.0),
    )


def untouched_run(preset: Preset) -> Run:
    """The model as it was."""
    size = SIZES[preset.name]
    return Run(
        work=f"{__name__}:measure_model",
        config={**subject(preset), "max_len": size.max_len, "held_out": size.held_out},
        label="the model before fine-tuning",
        seconds=seconds(preset, 1.0, 5.0, 120.0),
    )


def timing_run(preset: Preset, arms: Mapping[str, Mapping[str, Any]]) -> Run:
    """A step of every arm, in turn in one process: beside other work their times cannot be compared otherwise."""
    size = SIZES[preset.name]
    return Run(
        work=f"{__name__}:time_steps",
        config={
            "model": pretrained(preset),
            "arms": [[name, dict(arm)] for name, arm in arms.items()],
            "batch_size": size.batch_size,
            "max_len": size.max_len,
            "repeats": 1 if preset.name == "smoke" else 5,
        },
        label="step times of fine-tuning",
        seconds=seconds(preset, 2.0, 10.0, 300.0),
    )


def subject(preset: Preset) -> dict[str, Any]:
    corpora = preset.text.corpora
    return {"model": pretrained(preset), "corpus": corpora[0], "watched": corpora[1] if len(corpora) > 1 else None}


def seconds(preset: Preset, smoke: float, tiny: float, real: float) -> float:
    return smoke if preset.name == "smoke" else real if preset.text.pretrained else tiny


def pretrained(preset: Preset) -> dict[str, str]:
    """Name and hash of the model, wherever it lies."""
    return dict(preset.text.pretrained) or TINY


def base_folder(model: Mapping[str, str], place: Path) -> str:
    """The model's folder; the tiny one is made on the spot, the same every time."""
    from boosted_attention.pretrained.folders import quietly, weights_hash

    if model != TINY:
        folder = os.environ.get(MODEL, "")
        require(bool(folder), f"--model must name the folder of {model['name']}")
        require(weights_hash(Path(folder)) == model["weights"], f"--model {folder} does not hold {model['name']}")
        return str(Path(folder).absolute())
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = Tokenizer(byte_tokenizer(), "bytes")
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / ".lock"):
        if not (place / "model" / "config.json").exists():
            torch.manual_seed(0)
            config = LlamaConfig(
                vocab_size=tokenizer.vocab_size,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=2048,
                tie_word_embeddings=True,
            )
            with quietly():
                LlamaForCausalLM(config).save_pretrained(place / "model")
            tokenizer.save(place / "model" / "tokenizer.json")
    return str(place / "model")


def tune_model(
    progress: Callable[[float], None],
    *,
    folder: Path,
    model: dict[str, str],
    arm: dict[str, Any],
    size: dict[str, int],
    corpus: str,
    watched: str | None,
    seed: int,
) -> dict[str, Any]:
    """Fine-tune, and say what it did to the new text and to another one."""
    base = base_folder(model, folder.parent.parent / "models")
    tokens = tokens_of(base, corpus, size["held_out"])
    config = RunConfig(
        model=arm_model(base, arm, size["max_len"], tokens.tokenizer.vocab_size),
        training=TrainingConfig(
            steps=size["steps"],
            batch_size=size["batch_size"],
            lr=arm["lr"],
            horizon=0,
            weight_decay=0.0,
            eval_every=max(1, size["steps"] // 4),
            seed=seed,
        ),
        data=data_config(base, corpus, size["held_out"]),
    )
    trainer = Trainer(
        folder=folder / "training", config=config, data=tokens, checkpoint_every=25, observer=Reporter(progress)
    )
    found = trainer.run(resume=True)
    most = peak_memory()  # before another model is loaded
    other = None if watched is None else tokens_of(base, watched, size["held_out"])
    return {
        "new": found.tested().loss,
        "watched": None if other is None else loss_on(load_run(folder / "training").model, other),
        "curve": [[row.step, row.validation_loss] for row in evaluation_rows(folder / "training")],
        "trained_parameters": found.trained_parameters,
        "parameters": found.parameters,
        "flops_per_token": found.flops_per_token,
        "rank": config.model.lora_rank if config.model.train == "lora" else None,
        "data": tokens.fingerprint,
        "measured": {"peak_memory": most},
    }


def arm_model(base: str, arm: Mapping[str, Any], max_len: int, vocab_size: int) -> Any:
    """An arm's ``FinetuneConfig``."""
    from boosted_attention.pretrained.finetune import FinetuneConfig, lora_rank_for

    options = {key: value for key, value in arm.items() if key != "lr"}
    if options.get("train") == "lora":  # as many trained parameters as a boosted model has
        boosted = FinetuneConfig(base=base, boost={}, max_len=max_len)
        options["lora_rank"] = lora_rank_for(boosted.num_params(trained=True), base)
    return FinetuneConfig(base=base, max_len=max_len, vocab_size=vocab_size, **options)


def time_steps(
    progress: Callable[[float], None],
    *,
    folder: Path,
    model: dict[str, str],
    arms: list[tuple[str, dict[str, Any]]],
    batch_size: int,
    max_len: int,
    repeats: int,
) -> dict[str, Any]:
    """Times of interleaved steps, also as multiples of the first arm's; all of it depends on the machine."""
    base = base_folder(model, folder.parent.parent / "models")
    vocab_size = Tokenizer.load(Path(base) / "tokenizer.json").vocab_size
    models = {name: arm_model(base, arm, max_len, vocab_size) for name, arm in arms}
    seconds = step_seconds(models, batch_size, repeats, progress)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {"measured": {"seconds": medians, "ratios": ratios_to_first(seconds)}}


def measure_model(
    progress: Callable[[float], None],
    *,
    folder: Path,
    model: dict[str, str],
    corpus: str,
    watched: str | None,
    max_len: int,
    held_out: int,
) -> dict[str, Any]:
    """The losses of the model as it is, on the same tokens."""
    from boosted_attention.pretrained.finetune import FinetuneConfig

    base = base_folder(model, folder.parent.parent / "models")
    config = FinetuneConfig(base=base, max_len=max_len, train="all")
    untouched = config.build()
    losses = {}
    for name, text in (("new", corpus), ("watched", watched)):
        losses[name] = None if text is None else loss_on(untouched, tokens_of(base, text, held_out))
        progress(0.5 if name == "new" else 1.0)
    return {**losses, "parameters": config.num_params()}


def data_config(base: str, corpus: str, held_out: int) -> DataConfig:
    return DataConfig(corpus=corpus, tokenizer=str(Path(base) / "tokenizer.json"), held_out_tokens=held_out)


def tokens_of(base: str, corpus: str, held_out: int) -> TokenData:
    return prepare(data_config(base, corpus, held_out), 0)


def loss_on(model: Any, data: TokenData) -> float:
    return evaluate(model, data.splits["test"], batch_size=1).loss


def peak_memory() -> int:
    """Bytes that this process has needed at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
