"""Angles between vectors."""

import torch
from torch import Tensor

from layerwise.ops.rows import unit_rows


def angle(u: Tensor, v: Tensor) -> Tensor:
    """Angle between vectors in radians, 0 to pi, exact near both ends; 0 where one of them is zero.

    u, v (..., D) -> (...). By 2 atan2(|u - v|, |u + v|) of unit vectors: arccos of a cosine loses half its
    digits near 0 and pi.
    """
    u, v = unit_rows(u), unit_rows(v)
    apart, together = safe_norm(u - v), safe_norm(u + v)
    return 2 * torch.atan2(apart, together)


def safe_norm(x: Tensor) -> Tensor:
    """Length over the last axis, with gradient 0 instead of nan at the zero vector."""
    zero = (x == 0).all(dim=-1)
    return torch.where(zero, 0.0, torch.where(zero[..., None], 1.0, x).norm(dim=-1))
