"""A run's folder: who may write to it, what it holds, and what can be loaded from it.

RUN/   config.json   tokenizer.json   metrics.jsonl   checkpoints/   result.json   probe.json
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from filelock import FileLock, Timeout
from torch import nn

from boosted_attention.data.tokenizer import Tokenizer
from boosted_attention.data.tokens import TokenData
from boosted_attention.documentation import documented
from boosted_attention.model.protocols import CausalModel, ModelConfig
from boosted_attention.train import checkpoint
from boosted_attention.train.kinds import MissingKindError
from boosted_attention.train.run_config import RunConfig
from boosted_attention.validation import InputError, require, require_choice


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a folder for this process while it writes there. The operating system releases the lock of one that dies.

    Args:
        folder: a run, or results of a reproduction; it is made if it does not exist.
    """
    name = f"folder={str(folder)!r}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{name} cannot be made: {error.strerror}") from None
    owner = folder / ".owner"
    with ExitStack() as held:
        try:
            held.enter_context(FileLock(folder / ".lock", timeout=0))
            owner.write_text(f"{os.getpid()}\n")
            held.callback(owner.unlink, missing_ok=True)
        except Timeout:
            who = owner.read_text().strip() if owner.exists() else "unknown"
            raise InputError(f"{name} is in use by another process ({who}); wait for it or give another") from None
        except OSError as error:
            raise InputError(f"{name} cannot be written to: {error.strerror or error}") from None
        yield  # outside of the try: what fails while the folder is held is not the folder's fault


def differences(ours: Any, theirs: Any, prefix: str = "") -> list[str]:
    """List the keys under which two configurations differ, with both values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted({*ours, *theirs})
        return [line for key in keys for line in differences(ours.get(key), theirs.get(key), f"{prefix}{key}.")]
    return [] if ours == theirs else [f"{prefix.rstrip('.')} ({theirs!r} there, {ours!r} here)"]


@documented
@dataclass(frozen=True)
class TrainedRun:
    """A model with the tokenizer and configuration it was trained with."""

    folder: Path  # Folder of the run.
    config: RunConfig[ModelConfig]  # Configuration of model, training and data.
    model: CausalModel  # Model with the weights of the checkpoint.
    tokenizer: Tokenizer  # Tokenizer of the training text.
    step: int  # Updates done at the checkpoint.
    fingerprint: str  # Fingerprint of the text it was trained on.

    @property
    def module(self) -> nn.Module:
        """The model as a plain module, for analyses that take any."""
        return cast(nn.Module, self.model)


def load_run(folder: str | Path, which: str = "best", device: str | torch.device = "cpu") -> TrainedRun:
    """Load the model of a run, in evaluation mode.

    A run that fine-tuned a pretrained model needs ``import boosted_attention.pretrained`` first.

    Args:
        folder: the run's folder.
        which: "best" (the checkpoint with the lowest validation loss; the last one before the first evaluation) or
            "last".
        device: where to put the model.
    """
    folder = Path(folder)
    require_choice("which", which, ("best", "last"))
    pickled = ": pickles are never loaded (boosted_attention.load_original reads the original code's)"
    require(folder.is_dir(), f"{folder} is not a run folder" + (pickled if folder.is_file() else ""))
    config, fingerprint = read_config(folder)
    found = choose_checkpoint(folder, which)
    model = config.model.build()
    load_weights(model, found)
    require((folder / "tokenizer.json").is_file(), f"{folder} is not whole: it has no tokenizer.json")
    tokenizer = Tokenizer.load(folder / "tokenizer.json", config.data.tokenizer)
    require(
        tokenizer.vocab_size == config.model.vocab_size,
        f"{folder}/tokenizer.json has {tokenizer.vocab_size} tokens, the checkpoint {config.model.vocab_size}",
    )
    model.to(device)
    model.eval()
    return TrainedRun(folder, config, model, tokenizer, found.step, fingerprint)


def read_config(folder: Path) -> tuple[RunConfig[ModelConfig], str]:
    """Return the configuration of a run and the fingerprint of its data."""
    path = folder / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return RunConfig.from_dict(stored), stored["fingerprint"]
    except FileNotFoundError:
        raise InputError(f"{folder} is not a run folder: it has no config.json") from None
    except MissingKindError as error:
        raise InputError(f"{path}, {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def choose_checkpoint(folder: Path, which: str) -> checkpoint.Checkpoint:
    """Return the best or last checkpoint of a run; raise InputError rather than return another one in its place.

    Args:
        folder: the run's folder.
        which: "best" or "last".
    """
    parent = folder / "checkpoints"
    last, problems = checkpoint.latest(parent, "step")
    bests = checkpoint.steps_of(parent, "best")
    if last is not None and last.best_step is not None:
        bests.append(last.best_step)  # its folder may be missing
    missing = bool(bests) and not checkpoint.place(parent, "best", max(bests)).exists()
    if missing and last is not None and last.step == max(bests):
        return last  # it holds the same weights
    if which == "best" and bests:
        found, problem = checkpoint.opened(checkpoint.place(parent, "best", max(bests)))
        if found is None:
            raise InputError(f"{problem}, which belongs to the best checkpoint; which='last' loads the last one")
        return found
    if last is None:
        raise InputError(problems[0] if problems else f"{folder} has no checkpoint yet")
    return last


def load_weights(model: CausalModel, found: checkpoint.Checkpoint) -> None:
    """Load a checkpoint's weights into a model that is in one piece."""
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
        f"({data.tokenizer.vocab_size} tokens); corpus= reads a text with the run's own",
    )
