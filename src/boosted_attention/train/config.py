"""TrainingConfig: the options that decide how the weights come out, and no others."""

from __future__ import annotations

import math
from dataclasses import dataclass

from boosted_attention.data.layouts import LAYOUTS
from boosted_attention.documentation import documented
from boosted_attention.validation import is_count, require, require_choice

PROTOCOLS = ("full", "paper")  # how perplexity is measured; evaluation.py says what they mean
PRECISIONS = ("float32", "bfloat16", "float64")
UNITS = ("steps", "epochs")
LONGEST_WARMUP = 1500


@documented
@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained, with linear warm-up and cosine decay to zero; the defaults are the ``mini`` recipe's.

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
    optimizer: str = "adamw"
    """Optimizer by name, such as adamw."""
    lr: float = 1e-3
    """Highest learning rate."""
    warmup: int | None = None
    """Steps of linear warm-up; by default a tenth of the run, at most 1,500."""
    horizon: int = 1600
    """Cosine length in steps; shorter runs stop before the rate reaches zero."""
    weight_decay: float = 0.01
    """Weight decay, on all parameters."""
    beta2: float = 0.999
    """Second decay rate of adamw."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 for no clipping."""
    eval_every: int = 200
    """Steps (or epochs) between evaluations on the validation split; 0 evaluates at the end only."""
    eval_unit: str = "steps"
    """Unit of eval_every: steps or epochs."""
    protocol: str = "full"
    """Measure of perplexity: full (every token) or paper (rows, incomplete last batch dropped)."""
    precision: str = "float32"
    """Number format: float32, bfloat16 (autocast) or float64."""
    compile: bool = False
    """Compilation of the model with torch.compile."""
    seed: int = 0
    """Random seed for weights, data order and dropout."""

    def __post_init__(self) -> None:
        for option in ("steps", "batch_size", "accumulate"):
            require(is_count(getattr(self, option)), f"{option}={getattr(self, option)!r} must be at least 1")
        require(self.epochs is None or is_count(self.epochs), f"epochs={self.epochs!r} must be at least 1")
        require_choice("layout", self.layout, LAYOUTS)
        require_choice("eval_unit", self.eval_unit, UNITS)
        require_choice("protocol", self.protocol, PROTOCOLS)
        require_choice("precision", self.precision, PRECISIONS)
        require(
            self.batch_size % self.accumulate == 0,
            f"accumulate={self.accumulate} must divide batch_size={self.batch_size}",
        )
        for option in ("lr", "clip", "weight_decay", "eval_every", "warmup", "horizon"):
            value = getattr(self, option)
            require(value is None or (math.isfinite(value) and value >= 0), f"{option}={value!r} must not be negative")
        require(0 <= self.beta2 < 1, f"beta2={self.beta2!r} must lie in [0, 1)")
        require(0 <= self.seed < 2**63, f"seed={self.seed!r} must lie in [0, 2**63)")

    def total_steps(self, steps_per_epoch: int) -> int:
        """Return the number of updates of the whole run."""
        return self.steps if self.epochs is None else self.epochs * steps_per_epoch

    def evaluates_at(self, step: int, total: int, steps_per_epoch: int) -> bool:
        """Say whether to evaluate after ``step`` updates."""
        every = self.eval_every * (steps_per_epoch if self.eval_unit == "epochs" else 1)
        return step == total or (every > 0 and step % every == 0)

    def lr_at(self, step: int, total: int) -> float:
        """Return the learning rate of the update after ``step`` others: linear from 0, then a cosine to 0."""
        warmup = min(total // 10, LONGEST_WARMUP) if self.warmup is None else self.warmup
        if step < warmup:
            return self.lr * step / warmup
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, max(total, self.horizon) - warmup)))
