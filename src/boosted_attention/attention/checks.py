"""Checks of any layer on any device: parity with the oracle, causality, cached decoding.

The tests and ``boosted-attention check`` share them, so that a user's machine is held to what the tests demand.

**The error bound.** A fast path in some dtype may differ from the float64 oracle by at most twice what the plain
formula in that same dtype differs, plus 4 ulp of the tensor's largest entry; on average by 1.5 times plus 1 ulp. One
bound for every variant, shape and tensor, gradients included. A query projection with shared keys is one tensor with
the projection of those keys, as it is where a round has its own, and so are the norms of queries and keys: with few
keys the query's part alone is what remains after cancellation, exactly 0 in the plain formula where one key is seen,
while a fused kernel's backward pass subtracts two equal numbers that were summed in different order. Weights whose
gradient is a handful of numbers (FEW, or ONE_NUMBER times a vector: sums with cancellation; the ratio of two rounding
errors of one number has no bound) or identically zero (a lone query's with one key: zero has no ulp) are judged only as
part of the gradient of all weights as one vector. In float64 the bound is 1e-10, absolute, for every tensor.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from boosted_attention.attention import reference
from boosted_attention.attention.cache import KVCache
from boosted_attention.attention.layer import AttentionLayer

Module = TypeVar("Module", bound=nn.Module)
FLOAT64_BOUND = 1e-10
MASK_KINDS = ("none", "causal", "bool", "additive", "padding", "heads", "bool+causal", "additive+causal")

FEW = 8  # numbers and more have an error of their own
ONE_NUMBER = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")  # vectors whose gradient is a number times a vector

# Few enough steps to be quick, enough for a fixed point to float64 accuracy at the default initialisation.
CHECK_OPTIONS: dict[str, dict[str, Any]] = {"equilibrium": {"max_steps": 40, "tol": 0.0}}


@dataclass(frozen=True)
class TensorError:
    """Distances of one tensor, an output or a gradient, from the oracle: our path's, and the plain formula's."""

    name: str
    dtype: torch.dtype
    largest: float  # entry of the oracle, by magnitude
    max: float
    mean: float
    plain_max: float
    plain_mean: float

    @property
    def ok(self) -> bool:
        """Whether the error is within the bound of the module's docstring."""
        if self.dtype == torch.float64:
            return self.max <= FLOAT64_BOUND
        ulp = torch.finfo(self.dtype).eps * self.largest
        return self.max <= 2 * self.plain_max + 4 * ulp and self.mean <= 1.5 * self.plain_mean + ulp


@torch.no_grad()
def awakened(layer: Module) -> Module:
    """Move weights that start at zero, where they do nothing that could be wrong, in place."""
    for p in layer.parameters():
        if not p.is_meta and not p.any():
            p.add_(0.3 * torch.randn_like(p))
    return layer


def against_oracle(layer: AttentionLayer, x: Tensor, **call: Any) -> list[TensorError]:
    """Compare output and every gradient (input, memory, learned mask, each weight) with the float64 oracle."""
    dtype, parameters = x.dtype, dict(layer.named_parameters())
    memory, mask = call.get("memory"), call.get("mask")
    inputs = {"x": x}
    if isinstance(memory, tuple):
        inputs["key"], inputs["value"] = memory
    elif memory is not None:
        inputs["memory"] = memory
    if mask is not None and mask.requires_grad:  # a learned bias; the fused kernel is only for masks without gradient
        inputs["mask"] = mask
    leaves = {name: t.detach().requires_grad_() for name, t in inputs.items()}
    y = layer(leaves["x"], **_substitute(call, leaves))
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    got = _with_gradients(y, {**leaves, **parameters}, upstream)

    def oracle(precision: torch.dtype) -> dict[str, Tensor]:
        lifted = {n: t.detach().cpu().to(precision).requires_grad_() for n, t in {**inputs, **parameters}.items()}
        weights = {name: lifted[name] for name in parameters}
        rest: dict[str, Any] = {
            n: v.cpu() if isinstance(v, Tensor) else v for n, v in _substitute(call, lifted).items()
        }
        return _with_gradients(reference.layer(layer.config, weights, lifted["x"], **rest), lifted, upstream)

    exact = oracle(torch.float64)
    if dtype == torch.float64:
        return [measure(name, got[name], true, true, dtype) for name, true in exact.items()]
    plain = oracle(dtype)
    jointly = {f"d {n}" for n in parameters if _is_few_numbers(n, parameters[n]) or not exact[f"d {n}"].any()}
    groups = {n: _with_keys(n, exact) for n in exact if n not in jointly}
    groups["d weights"] = [f"d {n}" for n in parameters]
    return [measure(n, _join(got, g), _join(exact, g), _join(plain, g), dtype) for n, g in groups.items()]


def _with_keys(name: str, tensors: Collection[str]) -> list[str]:
    """Return the tensors judged as one with ``name``: norms, and a query projection of shared keys, come with keys'."""
    own = re.sub(r"\.[qk]_norm\.", ".qkv.", name)
    shared = re.sub(r"rounds\.\d+\.(q|q_norm)\.", "rounds.0.qkv.", name)
    return [n for n in tensors if n in (name, own if own != name and own in tensors else shared)]


def _join(tensors: dict[str, Tensor], names: list[str]) -> Tensor:
    return torch.cat([tensors[name].cpu().double().flatten() for name in names])


def _is_few_numbers(name: str, parameter: Tensor) -> bool:
    """Return whether a weight's gradient is a handful of numbers, or one number times a vector."""
    return parameter.numel() < FEW or name.rpartition(".")[2] in ONE_NUMBER


def measure(name: str, got: Tensor, exact: Tensor, plain: Tensor, dtype: torch.dtype) -> TensorError:
    """Return how far ``got``, computed in ``dtype``, and the plain formula are from the exact tensor."""
    ours, theirs = ((t.cpu().double() - exact).abs() for t in (got, plain))
    return TensorError(
        name=name,
        dtype=dtype,
        largest=float(exact.abs().max()),
        max=float(ours.max()),
        mean=float(ours.mean()),
        plain_max=float(theirs.max()),
        plain_mean=float(theirs.mean()),
    )


def _substitute(call: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the call's keywords with tensors exchanged for the given leaves."""
    call = {name: tensors.get(name, value) for name, value in call.items()}
    if "key" in tensors:
        call["memory"] = (tensors["key"], tensors["value"])
    return call


def _with_gradients(y: Tensor, leaves: dict[str, Tensor], upstream: Tensor) -> dict[str, Tensor]:
    gradients = torch.autograd.grad(y, list(leaves.values()), upstream.to(y.device, y.dtype), materialize_grads=True)
    named = {f"d {name}": g for name, g in zip(leaves, gradients, strict=True)}
    return {"output": y.detach(), **named}


def causality_violation(layer: AttentionLayer, x: Tensor, positions: Sequence[int]) -> str | None:
    """Disturb each of ``positions`` of x (B, T, D) and look for an effect on the past.

    Returns:
        None if the past stays bit-identical and has a gradient of exactly zero to the future, else what was found.
    """
    x = x.detach().requires_grad_()
    y = layer(x, is_causal=True)
    for s in positions:
        with torch.no_grad():
            disturbed = x.clone()
            disturbed[:, s] += 3.0
            if not torch.equal(layer(disturbed, is_causal=True)[:, :s], y[:, :s]):
                return f"changing position {s} changes the past"
        if s > 0:
            (gradient,) = torch.autograd.grad(y[:, :s].sum(), x, retain_graph=True)
            if gradient[:, s:].abs().max() != 0:
                return f"positions before {s} have a gradient to it or later ones"
    return None


@torch.no_grad()
def cached_error(layer: AttentionLayer, x: Tensor, chunks: Sequence[int], max_len: int | None = None) -> float:
    """Return the largest difference between decoding x (B, T, D) in ``chunks`` through a cache and one full pass."""
    assert sum(chunks) == x.shape[1]
    full = layer(x, is_causal=True)
    cache = KVCache(max_len=max_len)
    pieces = [layer(piece, is_causal=True, cache=cache) for piece in x.split(list(chunks), dim=1)]
    return float((torch.cat(pieces, dim=1) - full).abs().max())


def in_order(layer: AttentionLayer, call: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the keywords of a call, made causal if a learner of the layer is for causal calls only."""
    ordered = any(learner.needs_order for learner in layer.rounds)
    return {**(call or {}), **({"is_causal": True} if ordered else {})}


def sample_call(kind: str, batch: int, n_heads: int, length: int, dtype: torch.dtype, seed: int = 0) -> dict[str, Any]:
    """Draw a mask of one of MASK_KINDS, as keywords of a layer's call; some rows see nothing."""
    draw = torch.Generator().manual_seed(seed)
    shape = (batch, 1, length, length)
    if kind == "none":
        return {}
    if kind == "causal":
        return {"is_causal": True}
    if kind == "padding":  # left padding of a different length per row
        start = torch.randint(0, length, (batch,), generator=draw)
        return {"mask": (torch.arange(length) >= start[:, None])[:, None, None], "is_causal": True}
    if kind == "heads":
        return {"mask": torch.rand(batch, n_heads, length, length, generator=draw) > 0.4}
    mask = torch.rand(shape, generator=draw) > 0.4
    mask[:, :, :: max(2, length // 3)] = False  # these queries see nothing
    if kind.startswith("additive"):
        bias = torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)
        mask = bias.masked_fill(~mask, -torch.inf)
    return {"mask": mask, "is_causal": kind.endswith("+causal")}
