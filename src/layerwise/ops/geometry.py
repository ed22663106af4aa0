"""Angles between vectors."""

import torch
from torch import Tensor

from layerwise.ops.rows import unit_rows


def angle(u: Tensor, v: Tensor) -> Tensor:
    """Angle between vectors in radians, 0 to pi, accurate near both ends; 0 if one vector is zero.

    u, v (..., D) -> (...). Computed as 2 atan2(|u - v|, |u + v|) of unit vectors, since arccos of the cosine loses half
    its digits near 0 and pi.
    """
    return angle_of_units(unit_rows(u), unit_rows(v))


def angle_of_units(u: Tensor, v: Tensor) -> Tensor:
    """The same for vectors that already have length 1."""
    return 2 * torch.atan2((u - v).norm(dim=-1), (u + v).norm(dim=-1))
