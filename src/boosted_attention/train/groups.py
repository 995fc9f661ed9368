"""Groups of a model's parameters that optimizers treat differently, as the model's own modules tell them.

    matrix       weight with two dimensions inside a block: projections of attention and feed-forward network, adapters
    gate         parameter of a gate between rounds, or of a residual rule, which is no matrix whatever its shape
    correction   parameter of a round from 1 on

All others are embeddings, the vocabulary projection, norms, biases, and vectors and scalars of learners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from boosted_attention.attention.trace import ModuleTree, traced_layers
from boosted_attention.documentation import documented
from boosted_attention.model.protocols import CausalModel, PacksMatrices

Division = Callable[[Tensor], Sequence[Tensor]]


def undivided(t: Tensor) -> Sequence[Tensor]:
    """Divide a weight that is one matrix: return it as its only part."""
    return (t,)


@documented
@dataclass(frozen=True, kw_only=True)
class TrainedParameter:
    """A parameter that is trained, and what its place in the model says of it."""

    value: nn.Parameter  # Parameter itself.
    is_matrix: bool = False  # Whether it is a hidden matrix, or several in one.
    is_gate: bool = False  # Whether it belongs to a gate between rounds, or to a residual rule.
    is_correction: bool = False  # Whether it belongs to a round from 1 on.
    round: int = 0  # Round it belongs to, a gate to the one it admits, halting to the first; 0 for all else.
    divide: Division = undivided  # Division of a tensor of its shape into matrices, as ``PacksMatrices`` says.


def trained_parameters(model: CausalModel) -> dict[str, TrainedParameter]:
    """Return everything that is trained, by name.

    Args:
        model: the model; frozen parameters are left out, tensors without storage will do.
    """
    layers = traced_layers(model).values()
    rounds = rounds_of(model)
    gates = members([part for layer in layers for part in (*layer.gates, *layer.residuals)])
    corrections = members([learner for layer in layers for learner in layer.corrections])
    blocks = members(model.blocks())
    divisions = {
        f"{place}.{weight}".removeprefix("."): divide
        for place, module in model.named_modules()
        if isinstance(module, PacksMatrices)
        for weight, divide in module.packed_matrices().items()
    }
    return {
        name: TrainedParameter(
            value=p,
            is_matrix=p.ndim == 2 and id(p) in blocks - gates,
            is_gate=id(p) in gates,
            is_correction=id(p) in corrections,
            round=rounds[name],
            divide=divisions.get(name, undivided),
        )
        for name, p in model.named_parameters()
        if p.requires_grad
    }


def has_frozen_corrections(model: CausalModel) -> bool:
    """Say whether a model's corrections have parameters and none is trained, as when adapters are trained beside them.

    Args:
        model: the model.
    """
    inside = {name for name, m in rounds_of(model).items() if m > 0}
    return bool(inside) and not any(p.requires_grad for name, p in model.named_parameters() if name in inside)


def rounds_of(model: ModuleTree) -> dict[str, int]:
    """Return the round of every parameter by name: that of a correction or its gate, 0 for all others.

    What lets tokens halt belongs to the first correction: without any, there is nothing to decide.

    Args:
        model: any module that contains attention layers of boosted_attention.
    """
    found: dict[int, int] = {}
    for layer in traced_layers(model).values():
        for m, parts in enumerate(zip(layer.corrections, layer.gates, layer.residuals, strict=True), start=1):
            found |= dict.fromkeys(members(parts), m)
        if isinstance(unit := getattr(layer, "halting", None), nn.Module):
            found |= dict.fromkeys(members([unit]), 1)
    return {
        f"{place}.{name}".removeprefix("."): found.get(id(p), 0)
        for place, module in model.named_modules()
        for name, p in module.named_parameters(recurse=False)
    }


def members(modules: Iterable[nn.Module]) -> set[int]:
    """Return the identities of all parameters of some modules."""
    return {id(p) for module in modules for p in module.parameters()}
