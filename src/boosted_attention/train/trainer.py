"""The trainer: what a run is made of, and who may write to its folder; the loop is in ``training.py``."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boosted_attention.data.batches import Batches
from boosted_attention.data.tokens import TokenData
from boosted_attention.train.folder import RunConfig, exclusive
from boosted_attention.train.observer import Observer, Unwatched
from boosted_attention.train.parallel import ALONE, Parallel, attempt, job
from boosted_attention.train.signals import stop_signals
from boosted_attention.train.training import Training
from boosted_attention.validation import InputError, require


@dataclass(kw_only=True)
class Trainer:
    """Trains the model of ``config`` in ``folder``.

    ``checkpoint_every`` is not part of the configuration: it decides what is lost when a run is killed, not what comes
    out of it. Nor are ``checkpoint_activations``, which computes activations twice instead of keeping them, and
    ``parallel``, the processes that share the work: what one of them began, any number may go on with.
    """

    folder: Path
    config: RunConfig
    data: TokenData
    device: str = "cpu"
    checkpoint_every: int = 200
    tensorboard: bool = False
    checkpoint_activations: bool = False
    observer: Observer = field(default_factory=Unwatched)
    parallel: Parallel = ALONE

    def __post_init__(self) -> None:
        self.training = self.config.training
        require(
            self.data.tokenizer.vocab_size == self.config.model.vocab_size,
            f"the tokenizer has {self.data.tokenizer.vocab_size} tokens, the model vocab_size="
            f"{self.config.model.vocab_size}",
        )
        self.batches = Batches(
            self.data.splits["train"],
            layout=self.training.layout,
            batch_size=self.training.batch_size,
            length=self.config.model.max_len,
            seed=self.training.seed,
        )
        for split in ("validation", "test"):
            need = 2 if self.training.protocol == "full" else self.training.batch_size * self.config.model.max_len
            have = len(self.data.splits[split])
            require(have >= need, f"the {split} split has {have} tokens; evaluation needs at least {need}")
        self.parallel.require_rows(self.training.batch_size)
        self.total = self.training.total_steps(self.batches.steps_per_epoch)

    def run(self, *, resume: bool = False) -> dict[str, Any]:
        """Train to the end; what is in result.json. Raises Stopped when a signal came."""
        with ExitStack() as held:
            stop = held.enter_context(stop_signals())
            self.parallel.agree(lambda: self._take(held))
            self.parallel.agree(self._require_seen)
            try:
                return Training(self, resume or self._restarted(), stop).finish()
            except BrokenPipeError:
                raise  # whoever watches has gone
            except OSError as error:
                raise InputError(f"--out {self.folder} cannot be written to: {error.strerror or error}") from None

    def _restarted(self) -> bool:
        """Whether it was an earlier attempt of this very job that began the run."""
        path = self.folder / ".job"
        return attempt() > 0 and path.exists() and path.read_text() == job()

    def _take(self, held: ExitStack) -> None:
        """The folder is held by one process for all."""
        if self.parallel.main:
            held.enter_context(exclusive(self.folder))

    def _require_seen(self) -> None:
        """A folder that is another one on another machine would be noticed too late."""
        owner = (socket.gethostname(), os.getpid())
        theirs = self.parallel.gathered(owner)[0]
        path = self.folder / ".owner"
        seen = path.exists() and path.read_text().strip() == str(theirs[1])
        require(
            seen,
            f"process {self.parallel.rank} on {owner[0]} does not see --out {self.folder.absolute()} of process 0 on "
            f"{theirs[0]}; give a folder that all share",
        )
