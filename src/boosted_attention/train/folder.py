"""A run's folder: what it holds, and what can be loaded from it.

RUN/   config.json   tokenizer.json   metrics.jsonl   checkpoints/   result.json
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import nn

from boosted_attention.data.tokenizer import Tokenizer
from boosted_attention.data.tokens import TokenData
from boosted_attention.documentation import documented
from boosted_attention.model.protocols import CausalModel, ModelConfig
from boosted_attention.storage.locks import reading
from boosted_attention.storage.weights import require_finite
from boosted_attention.train import checkpoint
from boosted_attention.train.budget import NUMBER, least_weights
from boosted_attention.train.run_config import RunConfig
from boosted_attention.train.settings import read_settings, settings_differ, with_later_options
from boosted_attention.validation import InputError, require, require_choice


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
    stored = read_settings(folder)
    config = stored.config()
    tokenizer = stored.tokenizer(config.data.tokenizer)
    require(
        tokenizer.vocab_size == config.model.vocab_size,
        f"{folder}/tokenizer.json has {tokenizer.vocab_size} tokens, the model {config.model.vocab_size}",
    )
    with reading(folder):
        found = choose_checkpoint(folder, which)
        differing = settings_differ(with_later_options(stored.settings), found.state.get("config"))
        require(not differing, f"{found.folder} was trained with other settings than config.json: {differing[:1]}")
        require_size(config.model, found)
        model = config.model.build()
        load_weights(model, found)
    model.to(device)
    model.eval()
    return TrainedRun(folder, config, model, tokenizer, found.step, stored.fingerprint)


def choose_checkpoint(folder: Path, which: str) -> checkpoint.Checkpoint:
    """Return the best or last checkpoint of a run; raise InputError rather than return another one in its place.

    Args:
        folder: the run's folder.
        which: "best" or "last".
    """
    parent = folder / "checkpoints"
    last, problems = checkpoint.latest(parent, "step")
    bests = checkpoint.own_steps(parent, "best")
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
    if problems:
        whole = "" if last is None else f"; {last.folder.name} is whole, and is the last one once that is removed"
        raise InputError(f"{problems[0]}, which belongs to the last checkpoint{whole}")
    if last is None:
        raise InputError(f"{folder} has no checkpoint yet")
    return last


def require_size(config: ModelConfig, found: checkpoint.Checkpoint) -> None:
    """Raise InputError where a model cannot be the one of a checkpoint, before memory is taken for it."""
    stored = sum(about.bytes for name, about in found.files.items() if name.startswith("model"))
    require(
        NUMBER * least_weights(config) <= stored,
        f"{found.folder} holds {stored:,} bytes of weights, too few for the model of its config.json",
    )


def load_weights(model: CausalModel, found: checkpoint.Checkpoint) -> None:
    """Load a checkpoint's weights, which must be finite, into a model that is in one piece."""
    weights = dict(found.tensors("model"))
    require_finite(weights, str(found.folder))
    try:
        model.load_state_dict(weights)
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
