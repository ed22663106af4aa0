"""The map from one model's vectors to another's: three kinds are fitted, and held-out rows say which is kept."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from layerwise.maps.linear import LinearMap
from layerwise.maps.ridge import fit_ridge

RANK_SHARES = (0.125, 0.25, 0.5)  # of the smaller width, for maps of low rank


@dataclass(frozen=True)
class Alignment:
    """The best map, its kind, and the share of the targets' variance that each kind leaves on held-out rows."""

    linear: LinearMap
    kind: str
    unexplained: Mapping[str, float]


def fit_alignment(rows: Tensor, targets: Tensor, held_rows: Tensor, held_targets: Tensor) -> Alignment:
    """The map with a bias from rows (N, D) to targets (N, E) that is best on held-out rows.

    ridge: the lowest squared error; rank R: the same, followed by a projection on the R directions in which its results
    vary most; orthogonal: a rotation and one scale, which keeps the angles between rows.
    """
    ridge = fit_ridge(rows, targets, held_rows, held_targets).linear
    maps = {"ridge": ridge, "orthogonal": fit_orthogonal(rows, targets)}
    smaller = min(rows.shape[1], targets.shape[1])
    for rank in sorted({max(1, int(share * smaller)) for share in RANK_SHARES}):
        maps[f"rank {rank}"] = of_rank(ridge, rows, rank)
    errors = {kind: unexplained(linear, held_rows, held_targets, targets) for kind, linear in maps.items()}
    best = min(errors, key=errors.__getitem__)
    return Alignment(maps[best], best, errors)


def fit_orthogonal(rows: Tensor, targets: Tensor) -> LinearMap:
    """The rotation and scale with the lowest squared error, after both means are subtracted.

    Between spaces of different widths, the directions of the smaller one stay at right angles.
    """
    rows, targets = rows.double(), targets.double()
    mean, target_mean = rows.mean(dim=0), targets.mean(dim=0)
    centered = rows - mean
    left, values, right = torch.linalg.svd((targets - target_mean).mT @ centered, full_matrices=False)
    rotation = left @ right
    weight = float(values.sum()) / (float((centered @ rotation.mT).square().sum()) or 1.0) * rotation
    return LinearMap(weight, target_mean - weight @ mean)


def of_rank(linear: LinearMap, rows: Tensor, rank: int) -> LinearMap:
    """The map followed by a projection on the directions in which its results for these rows vary most."""
    found = linear(rows.double())
    mean = found.mean(dim=0)
    _, directions = torch.linalg.eigh((found - mean).mT @ (found - mean))  # ascending
    kept = directions[:, -rank:]
    projection = kept @ kept.mT
    return LinearMap(projection @ linear.weight, mean + projection @ (linear.bias - mean))


def unexplained(linear: LinearMap, held_rows: Tensor, held_targets: Tensor, targets: Tensor) -> float:
    """The share of the held-out targets' squared distance from the mean of `targets` that the map leaves."""
    held = held_targets.double()
    variance = float((held - targets.double().mean(dim=0)).square().sum())
    return float((held - linear(held_rows.double())).square().sum()) / variance if variance else 0.0
