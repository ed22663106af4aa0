"""Angles between the successive steps of a path."""

import torch
from torch import Tensor

from layerwise.metrics.ops.rows import unit_rows

# Where arccos of a cosine is accurate: not near 0 or pi, and no product of lengths near the limits of float32.
LARGEST_COSINE = 0.99
SMALLEST_PRODUCT, LARGEST_PRODUCT = 1e-30, 1e30


def turning_angles(steps: Tensor, lengths: Tensor) -> Tensor:
    """The angle from each step to the next in radians, 0 to pi, accurate near both ends; pi/2 where one has length 0.

    steps (B, S, D), lengths (B, S) of the steps -> (B, S - 1). Most angles come from dot products. Only where arccos
    would lose digits are the steps themselves scaled, subtracted and added, which takes four times as long.
    """
    if not lengths.numel():
        return lengths
    dots = (steps[:, :-1] * steps[:, 1:]).sum(dim=-1)  # einsum would take one matrix product per pair, and longer
    products = lengths[:, :-1] * lengths[:, 1:]
    is_accurate = (products > SMALLEST_PRODUCT) & (products < LARGEST_PRODUCT)
    cosine = dots / torch.where(is_accurate, products, 1.0)
    is_accurate = is_accurate & (cosine.abs() < LARGEST_COSINE)
    angles: Tensor = torch.where(is_accurate, cosine, 0.0).acos()
    rest = ~is_accurate & (lengths[:, :-1] > 0) & (lengths[:, 1:] > 0)
    if not bool(rest.any()):
        return angles
    return angles.index_put((rest,), angle_of_units(unit_rows(steps[:, :-1][rest]), unit_rows(steps[:, 1:][rest])))


def angle_of_units(u: Tensor, v: Tensor) -> Tensor:
    """2 atan2(|u - v|, |u + v|) of vectors of length 1: arccos loses half of the digits near 0 and pi."""
    return 2 * torch.atan2((u - v).norm(dim=-1), (u + v).norm(dim=-1))
