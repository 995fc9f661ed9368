"""Work on fine-tuning: one pretrained model, one way to train it, one seed each, resumable."""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from filelock import FileLock

from boosted_attention.data.tokenizer import Tokenizer, byte_tokenizer
from boosted_attention.data.tokens import DataConfig, TokenData, prepare
from boosted_attention.lab.trials.trial import Context, Settings, work
from boosted_attention.lab.work.language import DIVERGENCE, Diverged, Reporter, start_anew_with_another_torch
from boosted_attention.lab.work.timing import StepRatios, step_seconds
from boosted_attention.model.protocols import CausalModel
from boosted_attention.progress import Progress, part
from boosted_attention.records import from_json, to_json
from boosted_attention.storage.documents import read_json
from boosted_attention.storage.writing import write_json
from boosted_attention.timing import interleaved, median_ratios, quartile_ratios
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.evaluation import evaluate
from boosted_attention.train.folder import load_run
from boosted_attention.train.results import RunResult
from boosted_attention.train.run_config import RunConfig
from boosted_attention.train.trainer import Trainer
from boosted_attention.validation import require

if TYPE_CHECKING:
    from boosted_attention.pretrained.finetune import FinetuneConfig

TINY = {"name": "a tiny random Llama", "weights": ""}  # unless another is named
AS_LARGE = "as full corrections"  # a rank of LoRA: that with as many parameters
PROMPT = 32  # tokens that are read before decoding is timed
TRAINING, ONE_TEXT = 0.7, 0.85  # how far a trial is when it has trained, and when it has measured one text of two
NO_NUMBER = "after the last step: loss {}"


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """What depends on the machine."""

    peak_memory: int  # bytes of the training's process


@dataclass(frozen=True, kw_only=True)
class FinetuneResult:
    """A fine-tuned model: losses in nats on test text it learned and on another."""

    new: float
    watched: float | None
    trained_parameters: int
    parameters: int
    flops_per_token: int
    rank: int | None  # of LoRA
    data: str  # fingerprint of the text
    measured: MemoryUse


@dataclass(frozen=True, kw_only=True)
class FinetunePoint:
    """A fine-tuning at one learning rate, judged on validation text."""

    loss: float | None  # None where it diverged
    diverged: str | None  # what became infinite or NaN
    data: str  # fingerprint of the text


@dataclass(frozen=True, kw_only=True)
class TextLoss:
    """The loss on a text, and on each window of it."""

    loss: float
    windows: list[float]


@dataclass(frozen=True, kw_only=True)
class UntouchedResult:
    """Losses of the model as it was, on the same tokens."""

    texts: dict[str, TextLoss]
    data: dict[str, str]  # fingerprint of each text


@dataclass(frozen=True, kw_only=True)
class DecodeCosts:
    """What a decoded token costs: bytes of the cache, and in ``measured`` its time as a multiple of the base's."""

    cache_bytes: dict[str, int]
    measured: dict[str, float]
    measured_quartiles: dict[str, tuple[float, float]] | None = None  # None in results from before they were kept


def outcome_of(result: dict[str, Any]) -> FinetuneResult | Diverged:
    """Read the result of a fine-tuning."""
    return from_json(Diverged if "diverged" in result else FinetuneResult, result)


def base_folder(model: Mapping[str, str], context: Context) -> str:
    """Folder of the model; the tiny one is made on the spot, the same every time."""
    from boosted_attention.pretrained.folders import quietly, weights_hash

    if model != TINY:
        folder = context.settings.model or ""
        require(bool(folder), f"model= must name the folder of {model['name']}")
        require(weights_hash(Path(folder)) == model["weights"], f"model={folder!r} does not hold {model['name']}")
        return str(Path(folder).absolute())
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


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A finished fine-tuning."""

    model: CausalModel
    config: FinetuneConfig
    result: RunResult
    data: TokenData
    base: str  # folder of the model it began with
    peak_memory: int


def tune(
    context: Context, *, model: dict[str, str], arm: dict[str, Any], size: dict[str, int], corpus: str, seed: int
) -> Tuned:
    """Fine-tune the model.

    The trainer gets one window of each held-out split: what a trial is about, it measures itself, once, with the
    trained weights.
    """
    base, place = base_folder(model, context), context.folder / "training"
    start_anew_with_another_torch(place)
    tokens = prepare(data_config(base, corpus, size["held_out"], context.settings), 0)
    text = data_config(base, corpus, size["max_len"] + 1, context.settings)
    config = RunConfig(
        model=arm_model(base, arm, size["max_len"], tokens.tokenizer.vocab_size),
        training=TrainingConfig(
            steps=size["steps"],
            batch_size=size["batch_size"],
            lr=arm["lr"],
            horizon=0,
            weight_decay=0.0,
            eval_every=0,
            seed=seed,
        ),
        data=text,
    )
    trainer = Trainer(
        folder=place,
        config=config,
        data=prepare(text, 0),
        device=context.settings.device,
        checkpoint_every=20,
        observer=Reporter(part(context.progress, 0.0, TRAINING)),
    )
    result = trainer.run(resume=True)
    return Tuned(
        model=load_run(place, "last").model,
        config=config.model,
        result=result,
        data=tokens,
        base=base,
        peak_memory=memory_of_training(place),
    )


def memory_of_training(place: Path) -> int:
    """Return the most bytes that the training's process needed, which are kept beside the run it has just ended.

    A trial that is called again only to measure has trained nothing.
    """
    kept = place / "memory.json"
    if not kept.exists():
        write_json(kept, to_json(MemoryUse(peak_memory=peak_memory())))
    return from_json(MemoryUse, read_json(kept)).peak_memory


@work("finetune.sweep")
def tune_at_rate(
    context: Context, *, model: dict[str, str], arm: dict[str, Any], size: dict[str, int], corpus: str, seed: int
) -> dict[str, Any]:
    """Fine-tune at one learning rate and measure validation text; a training that diverges is a result too."""
    try:
        found = tune(context, model=model, arm=arm, size=size, corpus=corpus, seed=seed)
    except DIVERGENCE as error:
        return to_json(FinetunePoint(loss=None, diverged=str(error), data=fingerprint(context, model, size, corpus)))
    measuring = part(context.progress, TRAINING, 1.0)
    loss, data = loss_on(found.model, found.data.splits["validation"], measuring).loss, found.data.fingerprint
    if not math.isfinite(loss):
        return to_json(FinetunePoint(loss=None, diverged=NO_NUMBER.format(loss), data=data))
    return to_json(FinetunePoint(loss=loss, diverged=None, data=data))


@work("finetune.train", schema=2)  # 2: the last weights; a training that diverges is a result
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
    """Fine-tune the model and measure what that did to the new text and to another one.

    The result is a FinetuneResult, or a Diverged.
    """
    try:
        found = tune(context, model=model, arm=arm, size=size, corpus=corpus, seed=seed)
    except DIVERGENCE as error:
        return to_json(Diverged(diverged=str(error), data=fingerprint(context, model, size, corpus)))
    other = None
    if watched is not None:
        text = prepare(data_config(found.base, watched, size["held_out"], context.settings), 0)
        other = loss_on(found.model, text.splits["test"], part(context.progress, TRAINING, ONE_TEXT)).loss
    new = loss_on(found.model, found.data.splits["test"], part(context.progress, ONE_TEXT, 1.0)).loss
    for loss in (new, other or 0.0):
        if not math.isfinite(loss):
            return to_json(Diverged(diverged=NO_NUMBER.format(loss), data=found.data.fingerprint))
    result = FinetuneResult(
        new=new,
        watched=other,
        trained_parameters=found.result.trained_parameters,
        parameters=found.result.parameters,
        flops_per_token=found.result.flops_per_token,
        rank=found.config.lora_rank if found.config.train == "lora" else None,
        data=found.data.fingerprint,
        measured=MemoryUse(peak_memory=found.peak_memory),
    )
    return to_json(result)


def fingerprint(context: Context, model: Mapping[str, str], size: Mapping[str, int], corpus: str) -> str:
    """The fingerprint of the text that a model is trained on."""
    text = data_config(base_folder(model, context), corpus, size["held_out"], context.settings)
    return prepare(text, 0).fingerprint


def arm_model(base: str, arm: Mapping[str, Any], max_len: int, vocab_size: int) -> FinetuneConfig:
    """An arm's ``FinetuneConfig``."""
    from boosted_attention.pretrained.finetune import FinetuneConfig, lora_rank_for

    options = {key: value for key, value in arm.items() if key != "lr"}
    if options.get("lora_rank") == AS_LARGE:
        full = FinetuneConfig(base=base, boost={}, max_len=max_len)
        options["lora_rank"] = lora_rank_for(full.num_params(trained=True), base)
    return FinetuneConfig(base=base, max_len=max_len, vocab_size=vocab_size, **options)


@work("finetune.time", schema=2, alone=True)  # 2: multiples alone
def time_steps(
    context: Context,
    *,
    model: dict[str, str],
    arms: list[tuple[str, dict[str, Any]]],
    batch_size: int,
    max_len: int,
    repeats: int,
) -> dict[str, Any]:
    """Time interleaved training steps of all arms, as multiples of the first one's."""
    base = base_folder(model, context)
    vocab_size = Tokenizer.load(Path(base) / "tokenizer.json").vocab_size
    models = {name: arm_model(base, arm, max_len, vocab_size) for name, arm in arms}
    seconds = step_seconds(models, TrainingConfig(batch_size=batch_size), repeats, context.progress)
    return to_json(StepRatios.of(seconds))


@work("finetune.decode", alone=True)
def time_decoding(
    context: Context,
    *,
    model: dict[str, str],
    base: str,
    arms: list[tuple[str, dict[str, Any]]],
    tokens: int,
    repeats: int,
) -> dict[str, Any]:
    """Time interleaved cached decoding of all arms, adapters unmerged, beside the model as it was, called ``base``."""
    from boosted_attention.pretrained.decoding import Decoder

    folder = base_folder(model, context)
    named = [(base, {"train": "all"}), *arms]
    prompt = torch.ones(1, PROMPT, dtype=torch.long)
    models = {name: arm_model(folder, arm, PROMPT, 0).build().model.eval() for name, arm in named}
    decoders = {name: Decoder(model, prompt) for name, model in models.items()}
    turns = {name: partial(decoder, tokens) for name, decoder in decoders.items()}
    seconds = interleaved(turns, repeats, context.progress)
    costs = DecodeCosts(
        measured=median_ratios(seconds),
        measured_quartiles=quartile_ratios(seconds),
        cache_bytes={name: decoder.cache_bytes() for name, decoder in decoders.items()},
    )
    return to_json(costs)


@work("finetune.measure", schema=2)  # 2: any number of texts, and their windows
def measure_model(
    context: Context, *, model: dict[str, str], texts: list[str], max_len: int, held_out: int
) -> dict[str, Any]:
    """Measure the model as it was, on the same tokens."""
    from boosted_attention.pretrained.finetune import FinetuneConfig

    base = base_folder(model, context)
    config = FinetuneConfig(base=base, max_len=max_len, train="all")
    untouched = config.build()
    data = {text: prepare(data_config(base, text, held_out, context.settings), 0) for text in texts}
    found = {}
    for i, (text, tokens) in enumerate(data.items()):
        measuring = part(context.progress, i / len(texts), (i + 1) / len(texts))
        found[text] = loss_on(untouched, tokens.splits["test"], measuring)
    return to_json(UntouchedResult(texts=found, data={text: own.fingerprint for text, own in data.items()}))


def data_config(base: str, corpus: str, held_out: int, settings: Settings) -> DataConfig:
    """A text as the model's own tokenizer reads it."""
    return DataConfig(
        corpus=corpus,
        tokenizer=str(Path(base) / "tokenizer.json"),
        held_out_tokens=held_out,
        data_root=settings.data_root,
    )


def loss_on(model: CausalModel, tokens: np.ndarray, progress: Progress = lambda fraction: None) -> TextLoss:
    """Return the loss over every token (N,), and over the tokens of each window."""
    length = model.config.max_len
    starts, found = range(0, len(tokens) - 1, length), []
    for i in starts:
        found.append(evaluate(model, tokens[i : i + length + 1], batch_size=1))
        progress(len(found) / len(starts))
    total = sum(one.loss * one.tokens for one in found)
    return TextLoss(loss=total / sum(one.tokens for one in found), windows=[one.loss for one in found])


def peak_memory() -> int:
    """Bytes that this process has needed at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
