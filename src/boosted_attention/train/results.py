"""What a training run hands on: the rows of metrics.jsonl and the content of result.json."""

from __future__ import annotations

from dataclasses import dataclass, field

from boosted_attention.analysis.dynamics import RoundDynamics
from boosted_attention.documentation import documented
from boosted_attention.storage.sealing import FileEntry
from boosted_attention.validation import InputError


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One update."""

    step: int
    loss: float  # nats per token of the batch, before the update
    lr: float
    grad_norm: float  # before clipping
    tokens: int  # seen so far
    batch: str  # short hash of the batch's token ids


@dataclass(frozen=True, kw_only=True)
class ValidationRow:
    """One evaluation on the validation split."""

    step: int
    validation_loss: float
    validation_perplexity: float
    validation_bits_per_byte: float | None  # None where the text cannot be counted in bytes
    seconds: float  # of training so far, evaluations not counted


@dataclass(frozen=True, kw_only=True)
class EvaluationRow(ValidationRow):
    """One evaluation, with what the rounds of boosted layers did to a few rows of validation text."""

    rounds: list[RoundDynamics] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class SplitScore:
    """How well the best checkpoint predicts the test split."""

    loss: float  # nats per token
    tokens: int  # predicted
    bits_per_byte: float | None
    perplexity: float


@dataclass(frozen=True, kw_only=True)
class LeakageReport:
    """How far logits move when later tokens change, relative to the largest logit."""

    past: float  # before the changed tokens: zero up to rounding
    future: float  # from them on


@dataclass(frozen=True, kw_only=True)
class RunState:
    """What a checkpoint holds beside weights, optimizer and settings."""

    tokens: int  # predicted tokens trained on
    seconds: float  # of training
    best: ValidationRow | None  # None before the first evaluation
    probe: LeakageReport
    metrics: FileEntry  # of the rows up to the checkpoint


@documented
@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What came out of a run; ``result.json`` holds it."""

    test: SplitScore | None  # Score on the test split; None where the best checkpoint is damaged.
    best: ValidationRow | None  # Evaluation with the lowest validation loss; None without any evaluation.
    steps: int  # Number of updates done.
    tokens: int  # Number of predicted tokens trained on, repetitions included.
    seconds: float  # Seconds of training, evaluations not counted.
    parameters: int  # Number of parameters of the model.
    trained_parameters: int  # Number of parameters that were trained.
    flops_per_token: int  # FLOPs of the forward pass per token.
    data: str  # Fingerprint of the tokens.
    probe: LeakageReport  # Check that no logit depends on later tokens.
    problem: str | None = None  # Reason why there is no test score, with the damaged file; None where there is one.

    def tested(self) -> SplitScore:
        """Return the test score; raise InputError where there is none."""
        if self.test is None:
            raise InputError(self.problem or "the run was not tested")
        return self.test
