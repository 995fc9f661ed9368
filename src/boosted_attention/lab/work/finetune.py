"""Work on fine-tuning: one pretrained model, one way to train it, one seed each, resumable."""

from __future__ import annotations

import resource
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from boosted_attention.data.tokenizer import Tokenizer, byte_tokenizer
from boosted_attention.data.tokens import DataConfig, TokenData, prepare
from boosted_attention.lab.trials.trial import Context, Settings, work
from boosted_attention.lab.work.language import Reporter
from boosted_attention.lab.work.timing import step_seconds
from boosted_attention.model.protocols import CausalModel
from boosted_attention.records import to_json
from boosted_attention.timing import median_ratios
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.evaluation import evaluate
from boosted_attention.train.folder import load_run
from boosted_attention.train.metrics import evaluation_rows
from boosted_attention.train.run_config import RunConfig
from boosted_attention.train.trainer import Trainer
from boosted_attention.validation import require

if TYPE_CHECKING:
    from boosted_attention.pretrained.finetune import FinetuneConfig

TINY = {"name": "a tiny random Llama", "weights": ""}  # unless another is named


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """What depends on the machine."""

    peak_memory: int  # bytes of the training's process
    seconds_per_step: float | None = None  # in the first results only; step times have a trial of their own


@dataclass(frozen=True, kw_only=True)
class FinetuneResult:
    """A fine-tuned model: losses in nats on the text it learned and on another."""

    new: float
    watched: float | None
    curve: list[tuple[int, float]]  # (step, validation loss)
    trained_parameters: int
    parameters: int
    flops_per_token: int
    rank: int | None  # of LoRA
    data: str  # fingerprint of the text
    measured: MemoryUse


@dataclass(frozen=True, kw_only=True)
class UntouchedResult:
    """Losses of the model as it was, on the same tokens."""

    new: float
    watched: float | None
    parameters: int


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Medians of interleaved steps: in seconds, and as multiples of the first arm's."""

    seconds: dict[str, float]
    ratios: dict[str, float]


def base_folder(model: Mapping[str, str], context: Context) -> str:
    """Folder of the model; the tiny one is made on the spot, the same every time."""
    from boosted_attention.pretrained.folders import quietly, weights_hash

    if model != TINY:
        folder = context.settings.model or ""
        require(bool(folder), f"model= must name the folder of {model['name']}")
        require(weights_hash(Path(folder)) == model["weights"], f"model={folder!r} does not hold {model['name']}")
        return str(Path(folder).absolute())
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = Tokenizer(byte_tokenizer(), "bytes")
    place = context.shared / "tiny-llama"
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / ".lock"):
        if not (place / "tokenizer.json").exists():  # written last
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
                LlamaForCausalLM(config).save_pretrained(place)
            tokenizer.save(place / "tokenizer.json")
    return str(place)


@work("finetune.train")
def tune_model(
    context: Context,
    *,
    model: dict[str, str],
    arm: dict[str, Any],
    size: dict[str, int],
    corpus: str,
    watched: str | None,
    seed: int,
) -> dict[str, Any]:
    """Fine-tune the model and measure what that did to the new text and to another one."""
    base, place = base_folder(model, context), context.folder / "training"
    text = data_config(base, corpus, size["held_out"], context.settings)
    tokens = prepare(text, 0)
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
        data=text,
    )
    trainer = Trainer(
        folder=place,
        config=config,
        data=tokens,
        device=context.settings.device,
        checkpoint_every=25,
        observer=Reporter(context.progress),
    )
    found = trainer.run(resume=True)
    most = peak_memory()  # before another model is loaded
    other = None
    if watched is not None:
        other = loss_on(
            load_run(place).model, prepare(data_config(base, watched, size["held_out"], context.settings), 0)
        )
    result = FinetuneResult(
        new=found.tested().loss,
        watched=other,
        curve=[(row.step, row.validation_loss) for row in evaluation_rows(place)],
        trained_parameters=found.trained_parameters,
        parameters=found.parameters,
        flops_per_token=found.flops_per_token,
        rank=config.model.lora_rank if config.model.train == "lora" else None,
        data=tokens.fingerprint,
        measured=MemoryUse(peak_memory=most),
    )
    return to_json(result)


def arm_model(base: str, arm: Mapping[str, Any], max_len: int, vocab_size: int) -> FinetuneConfig:
    """An arm's ``FinetuneConfig``."""
    from boosted_attention.pretrained.finetune import FinetuneConfig, lora_rank_for

    options = {key: value for key, value in arm.items() if key != "lr"}
    if options.get("train") == "lora":  # as many trained parameters as a boosted model has
        boosted = FinetuneConfig(base=base, boost={}, max_len=max_len)
        options["lora_rank"] = lora_rank_for(boosted.num_params(trained=True), base)
    return FinetuneConfig(base=base, max_len=max_len, vocab_size=vocab_size, **options)


@work("finetune.time")
def time_steps(
    context: Context,
    *,
    model: dict[str, str],
    arms: list[tuple[str, dict[str, Any]]],
    batch_size: int,
    max_len: int,
    repeats: int,
) -> dict[str, Any]:
    """Time interleaved training steps of all arms."""
    base = base_folder(model, context)
    vocab_size = Tokenizer.load(Path(base) / "tokenizer.json").vocab_size
    models = {name: arm_model(base, arm, max_len, vocab_size) for name, arm in arms}
    seconds = step_seconds(models, TrainingConfig(batch_size=batch_size), repeats, context.progress)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {"measured": to_json(StepTimes(seconds=medians, ratios=median_ratios(seconds)))}


@work("finetune.measure")
def measure_model(
    context: Context, *, model: dict[str, str], corpus: str, watched: str | None, max_len: int, held_out: int
) -> dict[str, Any]:
    """Measure the model as it was, on the same tokens."""
    from boosted_attention.pretrained.finetune import FinetuneConfig

    base = base_folder(model, context)
    config = FinetuneConfig(base=base, max_len=max_len, train="all")
    untouched = config.build()

    def loss(text: str) -> float:
        return loss_on(untouched, prepare(data_config(base, text, held_out, context.settings), 0))

    new = loss(corpus)
    context.progress(0.5)
    return to_json(
        UntouchedResult(new=new, watched=None if watched is None else loss(watched), parameters=config.num_params())
    )


def data_config(base: str, corpus: str, held_out: int, settings: Settings) -> DataConfig:
    """A text as the model's own tokenizer reads it."""
    return DataConfig(
        corpus=corpus,
        tokenizer=str(Path(base) / "tokenizer.json"),
        held_out_tokens=held_out,
        data_root=settings.data_root,
    )


def loss_on(model: CausalModel, data: TokenData) -> float:
    return evaluate(model, data.splits["test"], batch_size=1).loss


def peak_memory() -> int:
    """Bytes that this process has needed at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
