"""Rotary position embedding: q_t and k_s are turned by angles t theta^(-2i/d_h), so q.k depends on t - s alone.

Reference: Su et al., "RoFormer", 2021. The pairing is (i, i + d_h/2), as in the Llama family.
"""

import torch
from torch import Tensor


def rotary_angles(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cos and sin for integer ``positions`` (T,) or (B, T), each (B or 1, 1, T, head_dim)."""
    work = torch.promote_types(dtype, torch.float32)
    exponent = torch.arange(0, head_dim, 2, device=positions.device, dtype=work) / head_dim  # (dh/2,)
    angles = positions.to(work)[..., None] * theta**-exponent  # (B, T, dh/2)
    angles = torch.cat([angles, angles], dim=-1)
    angles = (angles if angles.ndim == 3 else angles[None])[:, None]  # (B, 1, T, dh)
    return angles.cos(), angles.sin()


def rotate(t: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the last dimension of t by the given angles, in float32 or better."""
    cos, sin = angles
    first, second = t.chunk(2, dim=-1)
    return (t * cos + torch.cat([-second, first], dim=-1) * sin).to(t.dtype)
