"""TrainingConfig: the options that decide how the weights come out, and no others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from boosted_attention.data.layouts import LAYOUTS, PACKS
from boosted_attention.documentation import documented_with
from boosted_attention.train.optimizers import DEFAULT_OPTIMIZER, OPTIMIZERS, with_matrix_rate
from boosted_attention.validation import is_number, is_seed, require, require_choice, require_count

PROTOCOLS = {  # how perplexity is measured; evaluation.py says more
    "full": "every token of running text",
    "paper": "rows, incomplete last batch dropped",
    "documents": "each document alone, packed as in training; its first token not counted",
}
PRECISIONS = ("float32", "bfloat16", "float64")
UNITS = ("steps", "epochs")
DECAYED = ("all", "matrices")
# Share of the highest rate that is left when so many of the decay's steps are done.
SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "cosine": lambda done, length: 0.5 * (1 + math.cos(math.pi * done / length)),
    "linear": lambda done, length: 1 - done / length,
}
LONGEST_WARMUP = 1500
# Counts beyond which nothing is begun, so that a number with a digit too many is known at once.
MOST = {"steps": 10**9, "epochs": 10**6, "batch_size": 2**20, "accumulate": 2**20}
LATER = {"pack": "none"}  # options that stand in a stored configuration only where they differ from these


@documented_with(
    optimizers=", ".join(f"{name} ({kind.text})" for name, kind in OPTIMIZERS.items()),
    matrix_rates=", ".join(f"{rate:g} with {name}" for name, rate in with_matrix_rate().items()),
    protocols=", ".join(f"{name} ({text})" for name, text in PROTOCOLS.items()),
    decayed=", ".join(f"{kind.weight_decay_on} with {name}" for name, kind in OPTIMIZERS.items()),
)
@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained, with linear warm-up and decay to zero; the defaults are the ``mini`` recipe's.

    Every option below is a keyword argument, and an option of ``boosted-attention train``.
    """

    steps: int = 1600
    """Number of updates."""
    epochs: int | None = None
    """Passes over the training text, instead of steps."""
    batch_size: int = 32
    """Rows per update, over all processes and micro-batches."""
    accumulate: int = 1
    """Micro-batches per update; a divisor of the batch size."""
    layout: str = "windows"
    """Training rows: windows (every position predicts) or rows (the paper's: one prediction less per row)."""
    pack: str = "none"
    """Packing of training rows: none (running text) or documents (whole ones side by side, none of which sees another;
    longer ones cut, rest of a row padded)."""
    optimizer: str = DEFAULT_OPTIMIZER
    """Optimizer: {optimizers}."""
    lr: float = 1e-3
    """Highest learning rate; of parameters that are no hidden matrices, where matrix_lr is that of these."""
    matrix_lr: float | None = None
    """Highest learning rate of hidden matrices, for optimizers that have one; by default {matrix_rates}."""
    correction_lr_factor: float = 1.0
    """Factor on the learning rates of correction rounds."""
    gate_lr_factor: float = 1.0
    """Factor on the learning rate of gates between rounds."""
    schedule: str = "cosine"
    """Decay of all learning rates after warm-up: cosine or linear."""
    warmup: int | None = None
    """Steps of linear warm-up; by default a tenth of the run, at most 1,500."""
    horizon: int = 1600
    """Steps until the decay reaches zero, warm-up included; shorter runs stop before that."""
    weight_decay: float = 0.01
    """Weight decay."""
    weight_decay_on: str | None = None
    """Parameters with weight decay: all, or matrices (hidden ones); by default {decayed}."""
    beta2: float = 0.999
    """Second decay rate of AdamW."""
    stagewise: bool = False
    """Rounds trained one after the other, each with all before it frozen, and then everything together: as many phases
    as there are rounds and one more, in the same number of steps, each with the whole schedule."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 for no clipping."""
    eval_every: int = 200
    """Steps (or epochs) between evaluations on the validation split; 0 evaluates at the end only."""
    eval_unit: str = "steps"
    """Unit of eval_every: steps or epochs."""
    protocol: str = "full"
    """Measure of perplexity: {protocols}."""
    precision: str = "float32"
    """Number format: float32, bfloat16 (autocast) or float64."""
    compile: bool = False
    """Compilation of the model with torch.compile; on CPUs it does not pay."""
    seed: int = 0
    """Random seed for weights, data order and dropout."""

    def __post_init__(self) -> None:
        for option, most in MOST.items():
            if option != "epochs" or self.epochs is not None:
                require_count(option, getattr(self, option), most)
        require_choice("layout", self.layout, LAYOUTS)
        require_choice("pack", self.pack, PACKS)
        require(
            self.pack == "none" or self.layout == "windows",
            f"layout={self.layout!r} with pack={self.pack!r}: packed rows have no other layout; use layout='windows'",
        )
        require_choice("optimizer", self.optimizer, OPTIMIZERS)
        require_choice("schedule", self.schedule, SCHEDULES)
        if self.weight_decay_on is not None:
            require_choice("weight_decay_on", self.weight_decay_on, DECAYED)
        require_choice("eval_unit", self.eval_unit, UNITS)
        require_choice("protocol", self.protocol, PROTOCOLS)
        require_choice("precision", self.precision, PRECISIONS)
        require(
            self.batch_size % self.accumulate == 0,
            f"accumulate={self.accumulate} must divide batch_size={self.batch_size}",
        )
        factors = ("correction_lr_factor", "gate_lr_factor")
        for option in ("lr", "matrix_lr", *factors, "clip", "weight_decay", "eval_every", "warmup", "horizon"):
            value = getattr(self, option)
            require(value is None or (is_number(value) and value >= 0), f"{option}={value!r} must not be negative")
        require(is_number(self.beta2) and 0 <= self.beta2 < 1, f"beta2={self.beta2!r} must lie in [0, 1)")
        require(is_seed(self.seed), f"seed={self.seed!r} must lie in [0, 2**63)")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, as config.json holds them."""
        return {name: value for name, value in asdict(self).items() if name not in LATER or value != LATER[name]}

    def total_steps(self, steps_per_epoch: int) -> int:
        """Return the number of updates of the whole run."""
        return self.steps if self.epochs is None else self.epochs * steps_per_epoch

    def evaluates_at(self, step: int, total: int, steps_per_epoch: int) -> bool:
        """Say whether to evaluate after ``step`` updates."""
        every = self.eval_every * (steps_per_epoch if self.eval_unit == "epochs" else 1)
        return step == total or (every > 0 and step % every == 0)

    def lr_at(self, step: int, total: int, highest: float | None = None, share: float = 1.0) -> float:
        """Return the learning rate of the update after ``step`` others: linear from 0, then the schedule to 0.

        Args:
            step: updates done, of the whole run or of one of its phases.
            total: updates of the same.
            highest: rate at the end of warm-up, for parameters that have another than ``lr``.
            share: what part of the run's updates ``total`` is; a phase has that part of the horizon.
        """
        highest = self.lr if highest is None else highest
        warmup = min(total // 10, LONGEST_WARMUP) if self.warmup is None else self.warmup
        if step < warmup:
            return highest * step / warmup
        horizon = max(total, round(self.horizon * share))
        return highest * SCHEDULES[self.schedule](step - warmup, max(1, horizon - warmup))
