"""Ridge regression from one model's vectors to another's, with the penalty chosen on held-out texts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from layerwise.maps.linear import LinearMap

# relative to the mean variance of a dimension
PENALTIES = tuple(10.0**exponent for exponent in (-6, -5, -4, -3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0, 1))


@dataclass(frozen=True)
class RidgeFit:
    """A fitted map, its penalty, and the share of the targets' variance that it leaves on held-out rows."""

    linear: LinearMap
    penalty: float
    unexplained: float


def fit_ridge(rows: Tensor, targets: Tensor, held_rows: Tensor, held_targets: Tensor) -> RidgeFit:
    """The linear map with a bias from rows (N, D) to targets (N, E) with the lowest squared error on held-out rows.

    All penalties use one eigendecomposition of the rows' covariance.
    """
    rows, targets = rows.double(), targets.double()
    mean, target_mean = rows.mean(dim=0), targets.mean(dim=0)
    centered = rows - mean
    values, directions = torch.linalg.eigh(centered.mT @ centered / len(rows))
    values = values.clamp(min=0)
    projected = directions.mT @ (centered.mT @ (targets - target_mean)) / len(rows)  # (D, E)
    held_projected, held_centered = (held_rows.double() - mean) @ directions, held_targets.double() - target_mean
    variance = float(held_centered.square().sum())
    scale = float(values.mean()) or 1.0  # 0: all rows are the same
    errors = {}
    for penalty in PENALTIES:
        predicted = held_projected @ (projected / (values + penalty * scale).unsqueeze(1))
        errors[penalty] = float((held_centered - predicted).square().sum())
    best = min(errors, key=errors.__getitem__)
    weight = (directions @ (projected / (values + best * scale).unsqueeze(1))).mT
    return RidgeFit(LinearMap(weight, target_mean - weight @ mean), best, errors[best] / variance if variance else 0.0)
