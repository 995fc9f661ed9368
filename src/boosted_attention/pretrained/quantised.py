"""Quantised bases: how they are told, and what the values and sizes of their weights are."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

QUANTISERS = ("torchao", "bitsandbytes")  # whose models take light corrections


def is_quantised(model: PreTrainedModel) -> bool:
    """Say whether weights are quantised: by transformers, as integers, or packed away behind a method."""
    by_transformers = getattr(model, "is_quantized", False) or getattr(model, "hf_quantizer", None) is not None
    packed = any(callable(weight) for m in model.modules() if (weight := getattr(m, "weight", None)) is not None)
    return by_transformers or packed or not all(p.is_floating_point() for p in model.parameters())


def quantiser(model: PreTrainedModel) -> str:
    """Return the name of what quantised a model, as transformers knows it."""
    method = getattr(getattr(model.config, "quantization_config", None), "quant_method", "an unknown method")
    return str(getattr(method, "value", method))


def dense_parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield names and values of a model's parameters, quantised ones as the numbers they stand for; tied ones once."""
    seen = set()
    for path, module in model.named_modules():
        for name, p in module.named_parameters(path, recurse=False):
            if id(p) not in seen:
                seen.add(id(p))
                yield name, dense(module, p).detach()


def dense(module: nn.Module, p: nn.Parameter) -> Tensor:
    """Return the values of a module's parameter, which may be quantised."""
    kind: Any = type(p).__name__  # bitsandbytes need not be installed
    if kind == "Params4bit":
        return dense_4bit(module, p)
    if kind == "Int8Params":
        from transformers.integrations.bitsandbytes import dequantize_bnb_weight

        return dequantize_bnb_weight(p, module.state)
    return p if type(p.data) is Tensor else p.dequantize()  # torchao has tensors of its own


def dense_4bit(module: nn.Module, p: Any) -> Tensor:
    """Return the values of a weight of four bits, its scales rounded to bfloat16.

    A processor with instructions for bfloat16 lays weights out for its own use when they are first multiplied by, and
    rounds their scales. Rounded always, they have the same values before and after.
    """
    from bitsandbytes import functional  # pyright: ignore[reportMissingImports]  # an extra

    module.state_dict()  # puts the weight back in its order
    state = copy.copy(p.quant_state)
    if state.nested:  # whose scales are quantised too
        state.absmax = functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
        state.nested = False
    state.absmax = state.absmax.bfloat16().float()
    return functional.dequantize_4bit(p.data, state)


def count(p: nn.Parameter) -> int:
    """Return how many numbers a parameter stands for; two of four bits each share a byte."""
    packed: Any = getattr(p, "quant_state", None)
    return p.numel() if packed is None else packed.shape.numel()
