"""The trainer: takes a run's folder for itself and trains in it; the loop itself is in ``loop.py``."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack

from boosted_attention.documentation import documented
from boosted_attention.storage.locks import OWNER, exclusive
from boosted_attention.train.loop import TrainingLoop
from boosted_attention.train.parallel import attempt, job
from boosted_attention.train.results import RunResult
from boosted_attention.train.setup import TrainingSetup
from boosted_attention.train.signals import stop_signals
from boosted_attention.validation import InputError, require


@documented
class Trainer(TrainingSetup):
    """Trains the model of a configuration in a folder::

    from boosted_attention.data import prepare
    from boosted_attention.train import RECIPES, Trainer

    config = RECIPES["mini"]
    data = prepare(config.data, config.model.vocab_size)
    result = Trainer(folder=Path("runs/mini"), config=config, data=data).run()
    """

    def run(self, *, resume: bool = False) -> RunResult:
        """Train to the end and return what result.json holds.

        Args:
            resume: go on from the last checkpoint in the folder; a run that has not begun begins.

        Raises:
            InputError: the folder, the data or the settings do not fit.
            Stopped: a signal asked for the end; everything is saved.
            TrainingError: loss, gradient or weights became infinite or NaN.
            LeakageError: the model sees the tokens it is to predict.
        """
        with ExitStack() as held:
            stop = held.enter_context(stop_signals())
            self.parallel.agree(lambda: self._take_folder(held))
            self.parallel.agree(self._require_shared_folder)
            try:
                return TrainingLoop(self, resume or self._restarted(), stop).finish()
            except BrokenPipeError:
                raise  # whoever watches has gone
            except OSError as error:
                problem = error.strerror or error
                raise InputError(f"folder={str(self.folder)!r} cannot be written to: {problem}") from None

    def _restarted(self) -> bool:
        """Say whether an earlier attempt of this very job of torchrun began the run."""
        path = self.folder / ".job"
        return attempt() > 0 and path.exists() and path.read_text() == job()

    def _take_folder(self, held: ExitStack) -> None:
        """Lock the folder, by one process for all."""
        if self.parallel.main:
            held.enter_context(exclusive(self.folder))

    def _require_shared_folder(self) -> None:
        """Refuse a path that names different folders on different machines, before anything is trained."""
        owner = (socket.gethostname(), os.getpid())
        theirs = self.parallel.gathered(owner)[0]
        path = self.folder / OWNER
        seen = path.exists() and path.read_text().strip() == str(theirs[1])
        require(
            seen,
            f"process {self.parallel.rank} on {owner[0]} does not see folder={str(self.folder.absolute())!r} of "
            f"process 0 on {theirs[0]}; give a folder that all share",
        )
