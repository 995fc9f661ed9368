"""TrainingSetup: the parts of a training run, checked against each other before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from boosted_attention.attention.trace import traced_layers
from boosted_attention.data.batches import Batches, PackedBatches
from boosted_attention.data.tokens import TokenData
from boosted_attention.documentation import documented
from boosted_attention.model.protocols import ModelConfig
from boosted_attention.train.budget import require_room
from boosted_attention.train.groups import trained_parameters
from boosted_attention.train.observer import TrainingObserver, Unwatched
from boosted_attention.train.optim import require_groups
from boosted_attention.train.parallel import ALONE, Parallel
from boosted_attention.train.phases import joint, require_trained_rounds, stagewise
from boosted_attention.train.run_config import RunConfig
from boosted_attention.train.sinks import require_sinks
from boosted_attention.validation import require


@documented
@dataclass(kw_only=True)
class TrainingSetup:
    """What a run is made of and how it is carried out.

    Only ``config`` and ``data`` decide what comes out. The other arguments decide what is lost when a run is killed,
    how much memory it takes and who shares the work: a run may be resumed with others.
    """

    folder: Path
    """Folder of the run."""
    config: RunConfig[ModelConfig]
    """Configuration of model, training and data."""
    data: TokenData
    """Tokens of ``config.data``."""
    device: str = "cpu"
    """Device on which the model is trained, such as "cpu" or "cuda"."""
    checkpoint_every: int = 200
    """Steps between checkpoints; 0 writes one at the end only."""
    log_to: tuple[str, ...] = ()
    """Names of tools that get copies of the metrics: "tensorboard", "trackio", "csv"."""
    checkpoint_activations: bool = False
    """Activations computed twice instead of kept."""
    observer: TrainingObserver = field(default_factory=Unwatched)
    """Observer that is told of every step, evaluation and remark."""
    parallel: Parallel = ALONE
    """Processes that share the work."""

    def __post_init__(self) -> None:
        self.training = self.config.training
        require_sinks(self.log_to)
        require(
            self.data.tokenizer.vocab_size == self.config.model.vocab_size,
            f"the tokenizer has {self.data.tokenizer.vocab_size} tokens, the model vocab_size="
            f"{self.config.model.vocab_size}",
        )
        self.batches = self._batches()
        for split in ("validation", "test"):
            need = 2 if self.training.protocol != "paper" else self.training.batch_size * self.config.model.max_len
            have = len(self.data.splits[split])
            require(have >= need, f"the {split} split has {have} tokens; evaluation needs at least {need}")
        if self.parallel.world == 1 and self.device == "cpu":
            require_room(self.config.model)
        model = self.config.model.on_meta()
        require(
            all(getattr(layer, "kernel", "auto") != "fused" for layer in traced_layers(model).values()),
            "kernel='fused' keeps no attention weights, at which evaluations in training look; use kernel='auto', "
            "which is fused elsewhere",
        )
        trained = trained_parameters(model)
        require_groups(self.training, trained.values())
        self.parallel.require_rows(self.training.batch_size)
        self.total = self.training.total_steps(self.batches.steps_per_epoch)
        self.phases = joint(self.total)
        if self.training.stagewise:
            require(self.parallel.world == 1, f"stagewise=True needs one process; there are {self.parallel.world}")
            n_rounds = max((layer.n_rounds for layer in traced_layers(model).values()), default=1)
            self.phases = stagewise(self.total, n_rounds)
            require_trained_rounds((parameter.round for parameter in trained.values()), n_rounds)

    def _batches(self) -> Batches | PackedBatches:
        """Return the training batches: of running text, or of packed documents."""
        tokens, end = self.data.splits["train"], self.data.tokenizer.end_of_text
        rows = {"batch_size": self.training.batch_size, "length": self.config.model.max_len, "seed": self.training.seed}
        if self.training.pack == "documents":
            return PackedBatches(tokens, end_of_text=end, **rows)
        return Batches(tokens, layout=self.training.layout, **rows)
