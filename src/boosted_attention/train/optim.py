"""Optimizers: how one is made, which tensors it keeps, and how they go into a checkpoint and come back.

No other module knows an optimizer by name. An ``UpdateRule`` describes one optimizer of torch's kind; an entry of
OPTIMIZERS chooses the rule of each parameter by its group, so that matrices and vectors may be treated differently. To
add an optimizer, write its rule and its entry here; checkpoints, memory estimates and timings ask this module and
follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boosted_attention.model.protocols import CausalModel
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.groups import TrainedParameter, trained_parameters
from boosted_attention.train.muon import Muon
from boosted_attention.train.parallel import ALONE, Parallel
from boosted_attention.validation import require, require_choice

MATRIX_LR = 0.02  # highest rate of Muon's matrices unless the configuration gives one
BETA1 = 0.9  # decay rate of AdamW's first moment

ParameterGroup = dict[str, Any]  # as torch takes it, with params, lr and weight_decay; and highest, for the schedule


@dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """One optimizer, and the names under which it keeps its state for a parameter.

    Args:
        make: builds the optimizer from the configuration, torch's groups of parameters, and all that is trained.
        highest: returns the learning rate at the end of warm-up, before the factors of groups.
        moments: state tensors of the parameter's own shape; a checkpoint names them ``<moment>.<parameter>``.
        counts: state tensors that are equal for all parameters; a checkpoint holds each once, under its own name.
        gathers: whether a parameter that is divided over processes is put together for its update.
    """

    make: Callable[[TrainingConfig, list[ParameterGroup], Sequence[TrainedParameter]], torch.optim.Optimizer]
    highest: Callable[[TrainingConfig], float]
    moments: tuple[str, ...]
    counts: tuple[str, ...] = ()
    gathers: bool = False


@dataclass(frozen=True, kw_only=True)
class OptimizerKind:
    """What a name of the option ``optimizer`` means.

    Args:
        rule: returns the rule of a parameter.
        weight_decay_on: parameters with weight decay unless the configuration says which.
        needs_matrices: whether it is made for hidden matrices: it has a rate for them, and no use without them.
    """

    rule: Callable[[TrainedParameter], UpdateRule]
    weight_decay_on: str
    needs_matrices: bool = False


# Reference: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
ADAMW = UpdateRule(
    make=lambda training, groups, parameters: torch.optim.AdamW(groups, betas=(BETA1, training.beta2), fused=True),
    highest=lambda training: training.lr,
    moments=("exp_avg", "exp_avg_sq"),
    counts=("step",),
)

# muon.py has the formula and the references.
MUON = UpdateRule(
    make=lambda training, groups, parameters: Muon(
        groups, lr=0.0, divisions={parameter.value: parameter.divide for parameter in parameters}
    ),
    highest=lambda training: MATRIX_LR if training.matrix_lr is None else training.matrix_lr,
    moments=("momentum_buffer",),
    gathers=True,
)

OPTIMIZERS: dict[str, OptimizerKind] = {
    "adamw": OptimizerKind(rule=lambda parameter: ADAMW, weight_decay_on="all"),
    "muon": OptimizerKind(
        rule=lambda parameter: MUON if parameter.is_matrix else ADAMW, weight_decay_on="matrices", needs_matrices=True
    ),
}


def require_groups(training: TrainingConfig, trained: Collection[TrainedParameter]) -> None:
    """Raise InputError where the optimizer is unknown, or an option concerns parameters that there are none of.

    Args:
        training: the configuration with the optimizer's settings.
        trained: everything that is trained.
    """
    require_choice("optimizer", training.optimizer, OPTIMIZERS)
    for option, what, found in (
        ("correction_lr_factor", "correction rounds", any(p.is_correction for p in trained)),
        ("gate_lr_factor", "gates with parameters", any(p.is_gate for p in trained)),
    ):
        factor = getattr(training, option)
        require(factor == 1 or found, f"{option}={factor} must be 1: nothing that is trained has {what}")
    found, needed = any(p.is_matrix for p in trained), OPTIMIZERS[training.optimizer].needs_matrices
    name = f"optimizer={training.optimizer!r}"
    require(
        found or not needed,
        f"{name} needs hidden matrices, and nothing that is trained has any; optimizer='adamw' does without",
    )
    require(
        found or training.weight_decay_on != "matrices",
        "weight_decay_on='matrices' concerns nothing: nothing that is trained is a hidden matrix; use 'all'",
    )
    require(
        training.matrix_lr is None or needed,
        f"matrix_lr={training.matrix_lr} has no use with {name}, whose one rate is lr=; optimizer='muon' has two",
    )


class TrainingOptimizer:
    """The optimizer of a training run, over the parameters of a model that are not frozen.

    Args:
        training: the configuration with the optimizer's settings.
        model: what is trained, distributed over processes already if it is to be.
        trained: the parameters to be updated, where they are some of those.

    Raises:
        InputError: the optimizer is unknown, or an option concerns parameters that the model does not have.
    """

    def __init__(
        self, training: TrainingConfig, model: CausalModel, trained: Mapping[str, TrainedParameter] | None = None
    ):
        if trained is None:
            trained = trained_parameters(model)
            require_groups(training, trained.values())
        self.training, self.kind = training, OPTIMIZERS[training.optimizer]
        self.parameters = {name: parameter.value for name, parameter in trained.items()}
        self.rules = {name: self.kind.rule(parameter) for name, parameter in trained.items()}
        self.optimizers: dict[UpdateRule, torch.optim.Optimizer] = {}
        for rule in dict.fromkeys(self.rules.values()):
            own = [parameter for name, parameter in trained.items() if self.rules[name] is rule]
            self.optimizers[rule] = rule.make(training, self._groups(rule, own), own)

    def _groups(self, rule: UpdateRule, parameters: Sequence[TrainedParameter]) -> list[ParameterGroup]:
        """Sort the parameters of one rule into torch's groups: one for each rate and weight decay."""
        groups: dict[tuple[float, float], ParameterGroup] = {}
        for parameter in parameters:
            highest = rule.highest(self.training) * self._factor(parameter)
            decay = self.training.weight_decay if self._decays(parameter) else 0.0
            new = {"params": [], "lr": self._rate(0.0), "weight_decay": decay, "highest": highest}
            groups.setdefault((highest, decay), new)["params"].append(parameter.value)
        return list(groups.values())

    def _factor(self, parameter: TrainedParameter) -> float:
        """Return the factor on a parameter's learning rate."""
        if parameter.is_gate:
            return self.training.gate_lr_factor
        return self.training.correction_lr_factor if parameter.is_correction else 1.0

    def _decays(self, parameter: TrainedParameter) -> bool:
        """Say whether a parameter has weight decay."""
        return parameter.is_matrix or (self.training.weight_decay_on or self.kind.weight_decay_on) == "all"

    def _rate(self, lr: float) -> float | Tensor:
        return torch.tensor(lr) if self.training.compile else lr  # a float would be compiled in as a constant

    def set_rates(self, step: int, total: int) -> None:
        """Set the learning rates of the update after ``step`` others, all on one schedule.

        Args:
            step: updates done.
            total: updates of the whole run.
        """
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self._rate(self.training.lr_at(step, total, group["highest"]))

    def step(self) -> None:
        """Update the parameters from their gradients, and drop the gradients."""
        for optimizer in self.optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the state after at least one step as named tensors, for a checkpoint."""
        held: dict[str, Tensor] = {}
        for name, p in self.parameters.items():
            rule = self.rules[name]
            state = self.optimizers[rule].state[p]
            held |= {count: state[count] for count in rule.counts}
            held |= {f"{moment}.{name}": state[moment] for moment in rule.moments}
        return held

    def load_state(self, held: Mapping[str, Tensor], parallel: Parallel = ALONE) -> None:
        """Take back what ``state_tensors`` gave, whole tensors divided over processes as their parameters are.

        Args:
            held: tensors by name; others beside the optimizer's own are ignored.
            parallel: the processes that share the parameters.
        """
        for name, p in self.parameters.items():
            rule = self.rules[name]
            counts = {count: held[count].to(p.device, copy=True) for count in rule.counts}
            moments = {moment: parallel.like(held[f"{moment}.{name}"], p) for moment in rule.moments}
            self.optimizers[rule].state[p] = {**counts, **moments}


def state_bytes(model: CausalModel, kind: str) -> int:
    """Return the bytes that an optimizer keeps beside the parameters it trains.

    Args:
        model: the model; tensors without storage will do.
        kind: a name from OPTIMIZERS.
    """
    require_choice("optimizer", kind, OPTIMIZERS)
    rule = OPTIMIZERS[kind].rule
    return sum(len(rule(p).moments) * p.value.nbytes for p in trained_parameters(model).values())


def gathered_parameters(model: CausalModel, kind: str) -> int:
    """Count the parameters that are put together for each update where they are divided over processes.

    Args:
        model: the model; tensors without storage will do.
        kind: a name from OPTIMIZERS.
    """
    rule = OPTIMIZERS[kind].rule
    return sum(p.value.numel() for p in trained_parameters(model).values() if rule(p).gathers)
