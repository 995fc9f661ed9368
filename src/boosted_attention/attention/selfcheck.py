"""Every check of ``checks.py`` for one catalog entry, on a device that the user chooses."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from boosted_attention.attention.catalog import attention_layer
from boosted_attention.attention.checks import (
    CHECK_OPTIONS,
    FLOAT64_BOUND,
    against_oracle,
    awakened,
    cached_error,
    causality_violation,
    in_order,
    sample_call,
)
from boosted_attention.validation import InputError, require

FLOAT32_CACHE_BOUND = 1e-4  # where a device has no float64, chunked and full passes may round differently
D_MODEL, N_HEADS, BATCH = 32, 4, 2


@dataclass
class LayerReport:
    """Largest error against the oracle per dtype, causality, cached decoding, and what failed."""

    errors: dict[torch.dtype, float]
    causal: bool
    cached: float
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.problems

    @property
    def why(self) -> str:
        """What failed, in one line."""
        return "; ".join(self.problems)


def usable_dtypes(device: str) -> list[torch.dtype]:
    """Return the dtypes of the check that the device has; raise InputError if there is no such device here."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"device={device!r} cannot be used: {reason}") from None
    dtypes = []
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        try:
            torch.ones(1, device=device, dtype=dtype).sum().item()
        except (RuntimeError, TypeError):
            continue
        dtypes.append(dtype)
    require(bool(dtypes), f"device={device!r} has none of float64, float32, bfloat16")
    return dtypes


def check_layer(name: str, device: str, dtypes: list[torch.dtype], length: int, seed: int) -> LayerReport:
    """Check parity in every dtype, then causality and cached decoding in the most precise one; problems are reported.

    Args:
        name: catalog name.
        device: device the layer runs on.
        dtypes: dtypes to check, the most precise first.
        length: tokens per sequence.
        seed: random seed of weights and inputs.
    """
    report = LayerReport(errors=dict.fromkeys(dtypes, math.nan), cached=math.nan, causal=False)
    try:
        _check_layer(report, name, device, dtypes, length, seed)
    except Exception as error:  # such as an operation the device does not have
        report.problems.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return report


def _check_layer(
    report: LayerReport, name: str, device: str, dtypes: list[torch.dtype], length: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, length, D_MODEL, generator=generator, dtype=torch.float64)
    for dtype in dtypes:
        layer = _build(name, seed).to(device, dtype)
        errors = []
        for kind in ("none", "causal", "padding"):
            call = in_order(layer, sample_call(kind, BATCH, N_HEADS, length, dtype, seed))
            call = {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in call.items()}
            errors += against_oracle(layer, x.to(device, dtype), **call)
        report.errors[dtype] = float(torch.tensor([error.max for error in errors]).max())  # NaN stays NaN
        report.problems += [f"{error.name} in {dtype} off by {error.max:.1e}" for error in errors if not error.ok]
    layer, x = _build(name, seed).to(device, dtypes[0]), x.to(device, dtypes[0])
    violation = causality_violation(layer, x, positions=range(0, length, max(1, length // 8)))
    report.causal = violation is None
    report.problems += [violation] if violation else []
    first = length // 2
    report.cached = cached_error(layer, x, [first, length - first - 1, 1], max_len=length)
    bound = FLOAT64_BOUND if dtypes[0] == torch.float64 else FLOAT32_CACHE_BOUND
    if not report.cached <= bound:  # NaN compares false and fails
        report.problems.append(f"cached decoding off by {report.cached:.1e}")


def _build(name: str, seed: int):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return awakened(attention_layer(name, d_model=D_MODEL, n_heads=N_HEADS, **CHECK_OPTIONS.get(name, {})))
