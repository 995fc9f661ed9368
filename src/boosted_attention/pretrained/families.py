"""Families of models, and where their attention modules project values and outputs.

To support another family, edit this file alone: enter its model_type in FAMILIES, so that the Auto classes know its
boosted models as soon as the package is imported (a model of any other family is registered when it is boosted); and if
its attention module names or stores its projections in a way that is not known yet, enter them in VALUE_PROJECTIONS,
OUTPUT_PROJECTIONS or ATTENTION_NAMES.

Most decoders of transformers name the value projection ``v_proj`` and the output projection ``o_proj``, ``out_proj`` or
``dense``. Two fuse queries, keys and values: GPT-2 in three blocks of columns (``Conv1D`` stores its matrix
transposed), GPT-NeoX interleaved head by head. Modules with other names are refused, not guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from boosted_attention.pretrained.layer import OURS

FAMILIES = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "opt", "gpt_neox", "phi", "smollm3")
OUTPUT_PROJECTIONS = ("o_proj", "out_proj", "dense", "c_proj")
ATTENTION_NAMES = ("self_attn", "attn", "attention", "self_attention")  # of an attention module in a decoder layer


@dataclass(frozen=True)
class ValueProjection:
    """One way in which attention modules store their value projection.

    Args:
        divide: takes the attention module and a weight or bias of the projection, and returns views of the parts for
            queries, keys and values that can be written to; of the values alone where the projection is theirs.
        fits: says whether a module's projection of this name, which takes and gives so many numbers, really is stored
            this way; other models have fused projections of the same names.
        fused: whether it makes queries and keys too.
    """

    divide: Callable[[nn.Module, Tensor], Sequence[Tensor]]
    fits: Callable[[nn.Module, int, int], bool]
    fused: bool = True


def separate(module: nn.Module, t: Tensor) -> Sequence[Tensor]:
    """Return all of a projection that the values have of their own."""
    return (t,)


def fused_blocks(module: nn.Module, t: Tensor) -> Sequence[Tensor]:
    """Divide GPT-2's projection: column blocks q, k, v of a transposed matrix."""
    return t.chunk(3, dim=-1)


def fused_heads(module: nn.Module, t: Tensor) -> Sequence[Tensor]:
    """Divide GPT-NeoX's projection: rows q, k, v of the first head, then of the second, and so on."""
    size: Any = module.head_size
    return t.unflatten(0, (-1, 3, size)).unbind(1)  # each (H, dh, D)


def is_fused_blocks(module: nn.Module, d_in: int, d_out: int) -> bool:
    return isinstance(module.c_attn, Conv1D) and d_out == 3 * d_in


def is_fused_heads(module: nn.Module, d_in: int, d_out: int) -> bool:
    size: Any = getattr(module, "head_size", 0)
    return bool(size) and d_out == 3 * d_in and d_in % size == 0


# By the name of the attribute.
VALUE_PROJECTIONS = {
    "v_proj": ValueProjection(separate, lambda module, d_in, d_out: True, fused=False),
    "c_attn": ValueProjection(fused_blocks, is_fused_blocks),
    "query_key_value": ValueProjection(fused_heads, is_fused_heads),
}


@dataclass(frozen=True, kw_only=True)
class Projections:
    """The projections of one attention module."""

    linears: list[nn.Module]  # all of them, without those of corrections
    output: nn.Module
    output_name: str
    inputs: Mapping[str, Mapping[str, Tensor | None]]
    """Each input projection by name: where queries, keys and values ("q", "k", "v") stand in what it gives, None for
    all of it. Empty where queries or keys are made in a way that is not known."""
    value_name: str  # of the projection that makes the values, and possibly more
    divide: Callable[[Tensor], Sequence[Tensor]]  # how its weight and its bias divide, values last
    value_linear: nn.Module

    @property
    def values(self) -> list[Tensor]:
        """Weight and bias of the values, as views that can be written to."""
        return [self.divide(t)[-1] for t in parameters_of(self.value_linear)]

    @property
    def packed(self) -> Mapping[str, Callable[[Tensor], Sequence[Tensor]]]:
        """How a weight that is not of the values alone divides, by name."""
        return {f"{self.value_name}.weight": self.divide} if len(self.inputs) == 1 else {}


def widths(linear: Any) -> tuple[int, int]:
    """Return how many numbers a linear layer takes and gives, however its weight is stored."""
    if isinstance(linear, Conv1D):
        return linear.nx, linear.nf
    return linear.in_features, linear.out_features


def matrix_of(linear: Any, rows: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return weight (d_out, d_in) and bias of a linear layer, of all it gives or of some rows."""
    weight = linear.weight.T if isinstance(linear, Conv1D) else linear.weight
    bias = getattr(linear, "bias", None)
    if rows is None:
        return weight, bias
    where = rows.to(weight.device)
    return weight[where], None if bias is None else bias[where]


def parameters_of(linear: nn.Module) -> list[Tensor]:
    """Return the weight of a linear layer and its bias, if it has one."""
    return [p for p in (linear.weight, getattr(linear, "bias", None)) if p is not None]  # type: ignore[misc]


def find_projections(module: nn.Module) -> Projections | None:
    """Return the projections of an attention module; None if it is not of a known form."""
    name = next((name for name in VALUE_PROJECTIONS if hasattr(module, name)), None)
    output_name = next((name for name in OUTPUT_PROJECTIONS if hasattr(module, name)), None)
    if name is None or output_name is None or hasattr(module, "q_attn"):  # cross-attention of GPT-2
        return None
    linear, known = getattr(module, name), VALUE_PROJECTIONS[name]
    if getattr(getattr(linear, "weight", None), "ndim", 0) != 2 or not known.fits(module, *widths(linear)):
        return None
    parts = [part for place, part in module.named_children() if place not in OURS]
    linears = [m for part in parts for m in part.modules() if getattr(getattr(m, "weight", None), "ndim", 0) == 2]
    divide = partial(known.divide, module)
    inputs: dict[str, dict[str, Tensor | None]] = {}
    if known.fused:
        numbers = torch.arange(widths(linear)[1], device="cpu")
        inputs = {name: {part: rows.flatten() for part, rows in zip("qkv", divide(numbers), strict=True)}}
    elif all(hasattr(module, f"{part}_proj") for part in "qk"):
        inputs = {f"{part}_proj": {part: None} for part in "qkv"}
    return Projections(
        linears=linears,
        output=getattr(module, output_name),
        output_name=output_name,
        inputs=inputs,
        value_name=name,
        value_linear=linear,
        divide=divide,
    )


@torch.no_grad()
def silence(module: nn.Module) -> None:
    """Make an attention module give exactly zero: zero values, and no bias behind them."""
    found = find_projections(module)
    assert found is not None
    for t in found.values:
        t.zero_()
    bias = getattr(found.output, "bias", None)
    if bias is not None:
        bias.zero_()


@torch.no_grad()
def redraw(module: nn.Module, std: float) -> None:
    """Draw fresh matrices, and set biases to zero."""
    found = find_projections(module)
    assert found is not None
    for linear in found.linears:
        nn.init.normal_(linear.weight, std=std)  # type: ignore[arg-type]
        if getattr(linear, "bias", None) is not None:
            nn.init.zeros_(linear.bias)  # type: ignore[arg-type]
