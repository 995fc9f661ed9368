"""The optimizer of a training: made for a model's parameters, put into a checkpoint and taken back.

``optimizers.py`` says which optimizers there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from boosted_attention.model.protocols import CausalModel
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.groups import TrainedParameter, trained_parameters
from boosted_attention.train.optimizers import OPTIMIZERS, ParameterGroup, UpdateRule, with_matrix_rate
from boosted_attention.train.parallel import ALONE, Parallel
from boosted_attention.validation import require, require_choice


def require_groups(training: TrainingConfig, trained: Collection[TrainedParameter]) -> None:
    """Raise InputError where an option concerns parameters that there are none of.

    Args:
        training: the configuration with the optimizer's settings.
        trained: everything that is trained.
    """
    for option, what, found in (
        ("correction_lr_factor", "correction rounds", any(p.is_correction for p in trained)),
        ("gate_lr_factor", "gates with parameters", any(p.is_gate for p in trained)),
    ):
        factor = getattr(training, option)
        require(factor == 1 or found, f"{option}={factor} must be 1: nothing that is trained has {what}")
    found, for_matrices = any(p.is_matrix for p in trained), with_matrix_rate()
    name = f"optimizer={training.optimizer!r}"
    others = " or ".join(f"optimizer={kind!r}" for kind in OPTIMIZERS if kind not in for_matrices)
    require(
        found or training.optimizer not in for_matrices,
        f"{name} needs hidden matrices, and nothing that is trained has any; use {others}",
    )
    require(
        found or training.weight_decay_on != "matrices",
        "weight_decay_on='matrices' concerns nothing: nothing that is trained is a hidden matrix; use 'all'",
    )
    require(
        training.matrix_lr is None or training.optimizer in for_matrices,
        f"matrix_lr={training.matrix_lr} has no use with {name}, whose one rate is lr=; it is for "
        + " or ".join(f"optimizer={kind!r}" for kind in for_matrices),
    )


class TrainingOptimizer:
    """The optimizer of a training run, over the parameters of a model that are not frozen.

    Args:
        training: the configuration with the optimizer's settings.
        model: what is trained, distributed over processes already if it is to be.
        trained: the parameters to be updated, where they are some of those.

    Raises:
        InputError: an option concerns parameters that the model does not have.
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
            highest = self._highest(rule) * self._factor(parameter)
            decay = self.training.weight_decay if self._decays(parameter) else 0.0
            new = {"params": [], "lr": self._rate(0.0), "weight_decay": decay, "highest": highest}
            groups.setdefault((highest, decay), new)["params"].append(parameter.value)
        return list(groups.values())

    def _highest(self, rule: UpdateRule) -> float:
        """Return the learning rate of a rule at the end of warm-up, before the factors of groups."""
        if rule.matrix_lr is None:
            return self.training.lr
        return rule.matrix_lr if self.training.matrix_lr is None else self.training.matrix_lr

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

    def set_rates(self, step: int, total: int, share: float = 1.0) -> None:
        """Set the learning rates of the update after ``step`` others, all on one schedule.

        Args:
            step: updates done, of the whole run or of one of its phases.
            total: updates of the same.
            share: what part of the run's updates that is.
        """
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self._rate(self.training.lr_at(step, total, group["highest"], share))

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
