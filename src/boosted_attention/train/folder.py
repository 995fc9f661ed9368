"""A run's folder: who may write to it, what it holds, and what can be loaded from it.

RUN/   config.json   tokenizer.json   metrics.jsonl   checkpoints/   result.json   probe.json
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import nn

from boosted_attention.data.tokenizer import Tokenizer
from boosted_attention.data.tokens import DataConfig, TokenData
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.train import checkpoint
from boosted_attention.train.config import TrainingConfig
from boosted_attention.validation import InputError, require, require_choice


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything a run is made from."""

    model: Any  # a LanguageModelConfig, or what else builds a model with its methods
    training: TrainingConfig
    data: DataConfig

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.model.to_dict(), "training": asdict(self.training), "data": asdict(self.data)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunConfig:
        return cls(
            model=model_config(values["model"]),
            training=TrainingConfig(**values["training"]),
            data=DataConfig(**values["data"]),
        )  # "fingerprint", which stands beside them in a run's folder, is no setting


def model_config(values: dict[str, Any]) -> Any:
    """The configuration of a model from what a run's folder says of it."""
    if values.get("kind") == "pretrained":  # by name: transformers is loaded for those runs only
        return importlib.import_module("boosted_attention.pretrained.finetune").FinetuneConfig.from_dict(values)
    return LanguageModelConfig.from_dict(values)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the run's folder. The lock is the operating system's: a process that dies lets go of it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {folder} cannot be made: {error.strerror}") from None
    owner = folder / ".owner"
    try:
        with FileLock(folder / ".lock", timeout=0):
            owner.write_text(f"{os.getpid()}\n")
            try:
                yield
            finally:
                owner.unlink(missing_ok=True)
    except Timeout:
        who = owner.read_text().strip() if owner.exists() else "unknown"
        raise InputError(f"--out {folder} is in use by another process ({who}); wait for it or give another") from None
    except OSError as error:
        raise InputError(f"--out {folder} cannot be written to: {error.strerror or error}") from None


def differences(ours: Any, theirs: Any, prefix: str = "") -> list[str]:
    """Keys under which two configurations differ, with both values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted({*ours, *theirs})
        return [line for key in keys for line in differences(ours.get(key), theirs.get(key), f"{prefix}{key}.")]
    return [] if ours == theirs else [f"{prefix.rstrip('.')} ({theirs!r} there, {ours!r} here)"]


@dataclass(frozen=True)
class TrainedRun:
    """A model with the tokenizer and configuration it was trained with."""

    folder: Path
    config: RunConfig
    model: Any  # a LanguageModel, or one with its methods
    tokenizer: Tokenizer
    step: int
    fingerprint: str  # of its data


def load_run(folder: Path, which: str = "best", device: str | torch.device = "cpu") -> TrainedRun:
    """The model of a run, from its best checkpoint or its last."""
    require_choice("--checkpoint", which, ("best", "last"))
    require(
        folder.is_dir(),
        f"{folder} is not a run folder"
        + (
            ": pickles are never loaded (boosted_attention.load_original reads the original code's)"
            if folder.is_file()
            else ""
        ),
    )
    path = folder / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        config, fingerprint = RunConfig.from_dict(stored), stored["fingerprint"]
    except FileNotFoundError:
        raise InputError(f"{folder} is not a run folder: it has no config.json") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    found, problems = None, []
    for kind in ("best", "step") if which == "best" else ("step",):  # a run stopped early has no best yet
        if found is None:
            found, wrong = checkpoint.latest(folder / "checkpoints", kind)
            problems += wrong
        if problems and found is None:
            raise InputError(problems[0])
    if found is None:
        raise InputError(f"{folder} has no checkpoint yet")
    model = config.model.build()
    load_weights(model, found)
    require((folder / "tokenizer.json").is_file(), f"{folder} is not whole: it has no tokenizer.json")
    tokenizer = Tokenizer.load(folder / "tokenizer.json", config.data.tokenizer)
    require(
        tokenizer.vocab_size == config.model.vocab_size,
        f"{folder}/tokenizer.json has {tokenizer.vocab_size} tokens, the checkpoint {config.model.vocab_size}",
    )
    return TrainedRun(folder, config, model.to(device).eval(), tokenizer, found.step, fingerprint)


def load_weights(model: nn.Module, found: checkpoint.Checkpoint) -> None:
    try:
        model.load_state_dict(dict(found.tensors("model")))
    except RuntimeError as error:
        raise InputError(
            f"{found.folder} does not fit its config.json: {str(error).splitlines()[-1].strip()}"
        ) from None


def require_same_tokens(run: TrainedRun, data: TokenData) -> None:
    """Raise InputError unless the tokens mean what they meant in training."""
    require(
        data.tokenizer.sha256 == run.tokenizer.sha256,
        f"{run.folder} was trained with another tokenizer ({run.tokenizer.vocab_size} tokens) than that of the corpus "
        f"({data.tokenizer.vocab_size} tokens); --corpus reads a text with the run's own",
    )
