"""What boosting needs to know of an attention module: where its values and its output are projected.

Most decoders of transformers name the value projection ``v_proj`` and the output projection ``o_proj``, ``out_proj`` or
``dense``. Two fuse queries, keys and values: GPT-2 in three blocks of columns (``Conv1D`` stores its matrix
transposed), GPT-NeoX interleaved head by head. Modules with other names are refused, not guessed at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from boosted_attention.validation import InputError, shortened

OUTPUTS = ("o_proj", "out_proj", "dense", "c_proj")
NAMES = ("self_attn", "attn", "attention", "self_attention")  # of an attention module inside a decoder layer


@dataclass(frozen=True)
class Parts:
    """The projections of one attention module."""

    linears: list[nn.Module]  # all of them
    output: nn.Module
    values: Callable[[nn.Module], list[Tensor]]  # the value projection's weight and bias, as views to be written to


def separate(module: nn.Module) -> list[Tensor]:
    return parameters_of(module.v_proj)  # type: ignore[arg-type]


def fused_blocks(module: nn.Module) -> list[Tensor]:
    """GPT-2: columns q, k, v of a transposed matrix."""
    return [t[..., 2 * t.shape[-1] // 3 :] for t in parameters_of(module.c_attn)]  # type: ignore[arg-type]


def fused_heads(module: nn.Module) -> list[Tensor]:
    """GPT-NeoX: rows q, k, v of the first head, then of the second, ..."""
    fused, size = module.query_key_value, module.head_size
    return [t.unflatten(0, (-1, 3, size))[:, 2] for t in parameters_of(fused)]  # type: ignore[arg-type]


KINDS: dict[str, Callable[[nn.Module], list[Tensor]]] = {
    "v_proj": separate,
    "c_attn": fused_blocks,
    "query_key_value": fused_heads,
}


def parameters_of(linear: nn.Module) -> list[Tensor]:
    return [p for p in (linear.weight, getattr(linear, "bias", None)) if p is not None]  # type: ignore[misc]


def find_parts(module: nn.Module) -> Parts | None:
    """The projections of an attention module; None if it is none that is known."""
    kind = next((name for name in KINDS if hasattr(module, name)), None)
    output = next((getattr(module, name) for name in OUTPUTS if hasattr(module, name)), None)
    if kind is None or output is None or hasattr(module, "q_attn"):  # cross-attention of GPT-2
        return None
    if not stored_as_known(module, kind):
        return None
    linears = [m for m in module.modules() if getattr(m, "weight", None) is not None and m.weight.ndim == 2]
    return Parts(linears, output, KINDS[kind])


def stored_as_known(module: nn.Module, kind: str) -> bool:
    """Whether the values are where KINDS says: other models have fused projections of the same names."""
    projection: Any = getattr(module, kind)
    weight = getattr(projection, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        return False
    if kind == "c_attn":
        return isinstance(projection, Conv1D) and weight.shape[1] == 3 * weight.shape[0]
    size: Any = getattr(module, "head_size", 0)
    return kind == "v_proj" or (bool(size) and weight.shape[0] == 3 * weight.shape[1] and weight.shape[1] % size == 0)


def find_attention(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """(decoder layer, attribute) of every attention module, in order; raises ValueError with what was found instead."""
    layers = decoder_layers(model)
    found = [(layer, name) for layer in layers for name in NAMES if isinstance(getattr(layer, name, None), nn.Module)]
    wrong = [
        f"{name}: {type(getattr(layer, name)).__name__}" for layer, name in found if not known(getattr(layer, name))
    ]
    if found and not wrong and len({id(layer) for layer, _ in found}) != len(layers):
        kinds = sorted({type(layer).__name__ for layer in layers})
        raise InputError(
            f"{type(model).__name__} cannot be boosted: only {len(found)} of its {len(layers)} layers have an "
            f"attention module of their own ({', '.join(kinds)})"
        )
    if not found or wrong:
        seen = sorted({type(m).__name__ for m in model.modules() if "ttention" in type(m).__name__})
        listed = shortened(sorted(set(wrong))) if wrong else f"attention modules: {shortened(seen) if seen else 'none'}"
        raise InputError(
            f"{type(model).__name__} cannot be boosted: its layers have no attention module with known projections "
            f"({', '.join(KINDS)} and {', '.join(OUTPUTS)}); found {listed}"
        )
    return found


def known(module: nn.Module) -> bool:
    from boosted_attention.pretrained.layer import CorrectedAttention

    return isinstance(module, CorrectedAttention) or find_parts(module) is not None


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The longest list of modules with attention modules among their children."""
    lists = [
        list(m)
        for m in model.modules()
        if isinstance(m, nn.ModuleList) and any(hasattr(layer, name) for layer in m for name in NAMES)
    ]
    return max(lists, key=len, default=[])


@torch.no_grad()
def silence(module: nn.Module) -> None:
    """Make an attention module give exactly zero: no values, and no bias behind them."""
    parts = find_parts(module)
    assert parts is not None
    for t in parts.values(module):
        t.zero_()
    bias = getattr(parts.output, "bias", None)
    if bias is not None:
        bias.zero_()


@torch.no_grad()
def redraw(module: nn.Module, std: float) -> None:
    """Fresh matrices and zero biases."""
    parts = find_parts(module)
    assert parts is not None
    for linear in parts.linears:
        nn.init.normal_(linear.weight, std=std)  # type: ignore[arg-type]
        if getattr(linear, "bias", None) is not None:
            nn.init.zeros_(linear.bias)  # type: ignore[arg-type]
