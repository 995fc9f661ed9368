"""Where attention modules of transformers project values and outputs, and what else of them differs by family.

To support another family whose attention modules name or store projections in a way that is not known yet, edit this
file alone: VALUE_PROJECTIONS, OUTPUT_PROJECTIONS, ATTENTION_NAMES or CACHE_INDICES. No list of families is kept: the
Auto classes know boosted models of all.

Most decoders name the value projection ``v_proj`` and the output projection ``o_proj``, ``out_proj`` or ``dense``.
Others fuse queries, keys and values, each in its own order, which only the code of their class tells: such modules are
known by the names of their classes, GPT-2's and GPT-NeoX's by their shapes. Modules of other forms are left alone, not
guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

OUTPUT_PROJECTIONS = ("o_proj", "out_proj", "dense", "c_proj")
ATTENTION_NAMES = ("self_attn", "attn", "attention", "self_attention", "mixer")  # of an attention module in its layer
OURS = ("rounds", "gates", "residuals", "outputs", "trace", "disabled", "n_rounds")  # what corrections add to a module
CACHE_INDICES = ("layer_idx", "layer_id")  # names under which modules keep the number of their layer of the cache


@dataclass(frozen=True)
class ValueProjection:
    """One way in which attention modules store their value projection.

    Args:
        name: the attribute of the module that holds it.
        divide: takes the attention module and a weight or bias of the projection, and returns views of the parts for
            queries, keys and values that can be written to; of the values alone where the projection is theirs.
        fits: says whether a module's projection of this name, which takes and gives so many numbers, really is stored
            this way; other models have fused projections of the same names.
        fused: whether it makes queries and keys too.
    """

    name: str
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
    """Divide the projection of GPT-NeoX, Bloom and Persimmon: rows q, k, v of the first head, then of the second."""
    size: Any = module.head_size if hasattr(module, "head_size") else module.head_dim
    return t.unflatten(0, (-1, 3, size)).unbind(1)  # each (H, dh, D)


def fused_grouped_blocks(module: nn.Module, t: Tensor) -> Sequence[Tensor]:
    """Divide Phi-3's projection: all rows of q, then of k, then of v, which may have fewer heads."""
    attention: Any = module
    n = attention.num_key_value_heads * attention.head_dim
    return t.split((len(t) - 2 * n, n, n))


def fused_falcon(module: nn.Module, t: Tensor) -> Sequence[Tensor]:
    """Divide Falcon's projection: head by head, or group by group: the queries of a group, then one k and one v."""
    attention: Any = module
    if not attention.new_decoder_architecture and not attention.multi_query:
        return fused_heads(module, t)
    groups = t.unflatten(0, (-1, attention.num_heads // attention.num_kv_heads + 2, attention.head_dim))
    return groups[:, :-2], groups[:, -2], groups[:, -1]


def fused_codegen(module: nn.Module, t: Tensor) -> Sequence[Tensor]:
    """Divide CodeGen's projection: four blocks of rows, one per core it was trained on, each with q, v, k."""
    q, v, k = t.unflatten(0, (4, 3, -1)).unbind(1)
    return q, k, v


def is_fused_blocks(module: nn.Module, d_in: int, d_out: int) -> bool:
    return isinstance(module.c_attn, Conv1D) and d_out == 3 * d_in


def is_fused_heads(module: nn.Module, d_in: int, d_out: int) -> bool:
    size: Any = getattr(module, "head_size", 0)
    return bool(size) and d_out == 3 * d_in and d_in % size == 0


def is_a(*names: str) -> Callable[[nn.Module, int, int], bool]:
    """Make a test for modules of classes with these names, or subclasses of them."""
    return lambda module, d_in, d_out: any(kind.__name__ in names for kind in type(module).__mro__)


VALUE_PROJECTIONS = (
    ValueProjection("v_proj", separate, lambda module, d_in, d_out: True, fused=False),
    ValueProjection("c_attn", fused_blocks, is_fused_blocks),
    ValueProjection("query_key_value", fused_heads, is_fused_heads),
    ValueProjection("query_key_value", fused_heads, is_a("BloomAttention", "PersimmonAttention")),
    ValueProjection("query_key_value", fused_falcon, is_a("FalconAttention")),
    ValueProjection("qkv_proj", fused_grouped_blocks, is_a("Phi3Attention", "Phi4MultimodalAttention")),
    ValueProjection("qkv_proj", fused_codegen, is_a("CodeGenAttention")),
)
PROJECTIONS = {"q_proj", "k_proj", *(way.name for way in VALUE_PROJECTIONS), *OUTPUT_PROJECTIONS}  # of attention


def cache_index_name(module: nn.Module) -> str | None:
    """Return the attribute in which an attention module keeps the number of its layer of the cache."""
    return next((name for name in CACHE_INDICES if hasattr(module, name)), None)


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
    output_name = next((name for name in OUTPUT_PROJECTIONS if hasattr(module, name)), None)
    stored = next((way for way in VALUE_PROJECTIONS if is_stored(module, way)), None)
    if stored is None or output_name is None or hasattr(module, "q_attn"):  # cross-attention of GPT-2
        return None
    if any(isinstance(m, nn.Conv1d) for m in module.modules()):  # a recurrence, or states beside keys and values
        return None
    name, linear, divide = stored.name, getattr(module, stored.name), partial(stored.divide, module)
    parts = [part for place, part in module.named_children() if place not in OURS]
    linears = [m for part in parts for m in part.modules() if getattr(getattr(m, "weight", None), "ndim", 0) == 2]
    inputs: dict[str, dict[str, Tensor | None]] = {}
    if stored.fused:
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


def is_stored(module: nn.Module, way: ValueProjection) -> bool:
    """Say whether a module stores its value projection in a way."""
    linear = getattr(module, way.name, None)
    return getattr(getattr(linear, "weight", None), "ndim", 0) == 2 and way.fits(module, *widths(linear))


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
