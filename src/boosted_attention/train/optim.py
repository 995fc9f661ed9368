"""Optimizers: how one is made, which tensors it keeps, and how they go into a checkpoint and come back.

No other module knows an optimizer by name. An ``UpdateRule`` describes one optimizer of torch; an entry of OPTIMIZERS
chooses the rule of each parameter, so that one kind may treat matrices and vectors differently. To add an optimizer,
write its rule and its entry here; checkpoints, memory estimates and timings ask this module and follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.parallel import ALONE, Parallel
from boosted_attention.validation import require_choice


@dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """One optimizer of torch, and the names under which it keeps its state for a parameter.

    Args:
        make: builds the optimizer from the configuration, the parameters and the first learning rate.
        moments: state tensors of the parameter's own shape; a checkpoint names them ``<moment>.<parameter>``.
        counts: state tensors that are equal for all parameters; a checkpoint holds each once, under its own name.
    """

    make: Callable[[TrainingConfig, Sequence[nn.Parameter], float | Tensor], torch.optim.Optimizer]
    moments: tuple[str, ...]
    counts: tuple[str, ...] = ()


BETA1 = 0.9  # decay rate of AdamW's first moment

# Reference: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
ADAMW = UpdateRule(
    make=lambda training, parameters, lr: torch.optim.AdamW(
        parameters, lr=lr, betas=(BETA1, training.beta2), weight_decay=training.weight_decay, fused=True
    ),
    moments=("exp_avg", "exp_avg_sq"),
    counts=("step",),
)

# The rule of each parameter, by its name and shape.
OPTIMIZERS: dict[str, Callable[[str, Tensor], UpdateRule]] = {"adamw": lambda name, p: ADAMW}


class TrainingOptimizer:
    """The optimizer of a training run, over named parameters.

    Args:
        training: the configuration with the optimizer's settings.
        parameters: what is trained, by name; frozen parameters are left out by the caller.
    """

    def __init__(self, training: TrainingConfig, parameters: Mapping[str, nn.Parameter]):
        self.parameters = dict(parameters)
        require_choice("optimizer", training.optimizer, OPTIMIZERS)
        self.rules = {name: OPTIMIZERS[training.optimizer](name, p) for name, p in parameters.items()}
        self.compiled = training.compile
        self.optimizers: dict[UpdateRule, torch.optim.Optimizer] = {}
        for rule in dict.fromkeys(self.rules.values()):
            own = [p for name, p in parameters.items() if self.rules[name] is rule]
            self.optimizers[rule] = rule.make(training, own, self._rate(0.0))

    def _rate(self, lr: float) -> float | Tensor:
        return torch.tensor(lr) if self.compiled else lr  # a float would be compiled in as a constant

    def set_rate(self, lr: float) -> None:
        """Set the learning rate of the next step."""
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self._rate(lr)

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


def state_bytes(parameters: Iterable[tuple[str, Tensor]], kind: str) -> int:
    """Return the bytes that an optimizer keeps beside these parameters.

    Args:
        parameters: (name, tensor) of everything trained; tensors without storage will do.
        kind: a name from OPTIMIZERS.
    """
    return sum(len(OPTIMIZERS[kind](name, p).moments) * p.numel() * p.element_size() for name, p in parameters)
