"""The optimizers there are: what each name of the option ``optimizer`` means. Importing this module imports no torch.

No other module knows an optimizer by name. An ``UpdateRule`` describes one optimizer of torch's kind; an entry of
OPTIMIZERS chooses the rule of each parameter, so that hidden matrices and all others may be treated differently. To
add an optimizer, write its rule and its entry here: options, help, messages, checkpoints, memory estimates and timings
ask this module and follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from boosted_attention.train.groups import TrainedParameter

BETA1 = 0.9  # decay rate of AdamW's first moment

ParameterGroup = dict[str, Any]  # as torch takes it, with params, lr and weight_decay; and highest, for the schedule


class RuleOptions(Protocol):
    """What rules read of a ``TrainingConfig``, beside rates and weight decay, which their groups have."""

    @property
    def beta2(self) -> float:
        """Decay rate of AdamW's second moment."""
        ...


@dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """One optimizer, and the names under which it keeps its state for a parameter.

    Args:
        make: builds the optimizer from its options, torch's groups of parameters, and all that it trains.
        moments: state tensors of the parameter's own shape; a checkpoint names them ``<moment>.<parameter>``.
        counts: state tensors that are equal for all parameters; a checkpoint holds each once, under its own name.
        matrix_lr: highest learning rate unless the option of this name gives one, for a rule that is made for hidden
            matrices; None for one whose rate is ``lr``.
        gathers: whether a parameter that is divided over processes is put together for its update.
    """

    make: Callable[[RuleOptions, list[ParameterGroup], Sequence[TrainedParameter]], torch.optim.Optimizer]
    moments: tuple[str, ...]
    counts: tuple[str, ...] = ()
    matrix_lr: float | None = None
    gathers: bool = False


@dataclass(frozen=True, kw_only=True)
class OptimizerKind:
    """What a name of the option ``optimizer`` means.

    Args:
        text: what it does, for help.
        matrices: rule of the hidden matrices of the blocks.
        others: rule of all other parameters.
        weight_decay_on: parameters with weight decay unless the configuration says which.
    """

    text: str
    matrices: UpdateRule
    others: UpdateRule
    weight_decay_on: str

    @property
    def matrix_lr(self) -> float | None:
        """Highest rate of hidden matrices by default; None where they have the rate of all others."""
        return self.matrices.matrix_lr

    def rule(self, parameter: TrainedParameter) -> UpdateRule:
        """Return the rule of a parameter."""
        return self.matrices if parameter.is_matrix else self.others


def make_adamw(
    options: RuleOptions, groups: list[ParameterGroup], parameters: Sequence[TrainedParameter]
) -> torch.optim.Optimizer:
    """Make torch's AdamW.

    Reference: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
    """
    import torch

    return torch.optim.AdamW(groups, betas=(BETA1, options.beta2), fused=True)


def make_muon(
    options: RuleOptions, groups: list[ParameterGroup], parameters: Sequence[TrainedParameter]
) -> torch.optim.Optimizer:
    """Make our Muon; ``muon.py`` has the formula and the references."""
    from boosted_attention.train.muon import Muon

    return Muon(groups, lr=0.0, divisions={parameter.value: parameter.divide for parameter in parameters})


ADAMW = UpdateRule(make=make_adamw, moments=("exp_avg", "exp_avg_sq"), counts=("step",))
MUON = UpdateRule(make=make_muon, moments=("momentum_buffer",), matrix_lr=0.02, gathers=True)

OPTIMIZERS: dict[str, OptimizerKind] = {
    "adamw": OptimizerKind(text="AdamW for all parameters", matrices=ADAMW, others=ADAMW, weight_decay_on="all"),
    "muon": OptimizerKind(
        text="Muon for the hidden matrices of the blocks, AdamW for all other parameters",
        matrices=MUON,
        others=ADAMW,
        weight_decay_on="matrices",
    ),
}
DEFAULT_OPTIMIZER = "adamw"


def with_matrix_rate() -> dict[str, float]:
    """Return the optimizers that have a rate of their own for hidden matrices, by name, and that rate by default."""
    return {name: kind.matrix_lr for name, kind in OPTIMIZERS.items() if kind.matrix_lr is not None}
