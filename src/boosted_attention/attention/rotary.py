"""Rotary position embedding: q_t and k_s are turned by angles t theta^(-2i/d_h), so q.k depends on t - s alone.

Reference: Su et al., "RoFormer", 2021. The pairing is (i, i + d_h/2), as in the Llama family.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor


class Angles(NamedTuple):
    """How far each position is turned, as factors of a vector and of the vector with its halves exchanged."""

    cos: Tensor  # (B or 1, 1, T, head_dim)
    sin: Tensor  # (B or 1, 1, T, head_dim), negative in the first half

    def unsqueeze(self, dim: int) -> Angles:
        """Return the angles with a further dimension of size 1."""
        return Angles(self.cos.unsqueeze(dim), self.sin.unsqueeze(dim))


def rotary_angles(positions: Tensor, widths: Iterable[int], theta: float, dtype: torch.dtype) -> dict[int, Angles]:
    """Return the angles of integer ``positions`` (T,) or (B, T) in float32 or better, for each width of heads."""
    return {width: angles_of_width(positions, width, theta, dtype) for width in sorted(widths)}


def angles_of_width(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> Angles:
    """Return the angles of ``positions`` for heads of one width."""
    work = torch.promote_types(dtype, torch.float32)
    exponent = torch.arange(0, head_dim, 2, device=positions.device, dtype=work) / head_dim  # (dh/2,)
    angles = positions.to(work)[..., None] * theta**-exponent  # (B, T, dh/2)
    angles = (angles if angles.ndim == 3 else angles[None])[:, None]  # (B, 1, T, dh/2)
    cos, sin = angles.cos(), angles.sin()
    return Angles(torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1))


def rotate(t: Tensor, angles: Angles) -> Tensor:
    """Turn the last dimension of t by the given angles, in float32 or better."""
    exchanged = t.roll(t.shape[-1] // 2, dims=-1)
    return torch.addcmul(t * angles.cos, exchanged, angles.sin).to(t.dtype)
