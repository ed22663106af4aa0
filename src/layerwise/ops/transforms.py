"""Linear maps with a bias, fitted without labels from count, mean and scatter: center, zscore, remove_top, whiten."""

from dataclasses import dataclass

import torch
from torch import Tensor

from layerwise.errors import InputError

KINDS = ("none", "center", "zscore", "remove_top:K", "whiten[:SHRINKAGE[:DIMENSIONS]]")
SHRINKAGE = 0.1


@dataclass(frozen=True)
class LinearMap:
    """x -> W x + b, W (E, D), b (E), in float64."""

    weight: Tensor
    bias: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """rows (N, D) -> (N, E), in the rows' own float type."""
        return (rows.double() @ self.weight.mT + self.bias).to(rows.dtype)


def fit_map(transform: str, count: int, mean: Tensor, scatter: Tensor) -> LinearMap:
    """The map that a word such as `remove_top:3` means, fitted on rows of this count, mean and scatter.

    center subtracts the mean; zscore also divides each dimension by its deviation; remove_top:K takes the mean and
    the first K principal directions out; whiten makes the covariance round, after shrinking it towards its mean
    variance by SHRINKAGE, and keeps only the first DIMENSIONS where given.
    """
    name, *numbers = transform.split(":")
    width = len(mean)
    eye = torch.eye(width, dtype=torch.float64)
    if name == "none":
        return LinearMap(eye, torch.zeros(width, dtype=torch.float64))
    if count < 2:
        raise InputError(f"{transform} must be fitted on at least 2 texts, got {count}")
    covariance = scatter / count
    try:
        weight = weight_of(name, [float(n) for n in numbers], covariance)
    except ValueError:
        raise InputError(f"transform {transform!r} is not one of {', '.join(KINDS)}") from None
    return LinearMap(weight, -(weight @ mean))


def weight_of(name: str, numbers: list[float], covariance: Tensor) -> Tensor:
    width = len(covariance)
    eye = torch.eye(width, dtype=covariance.dtype)
    if name == "center" and not numbers:
        return eye
    if name == "zscore" and not numbers:
        deviation = covariance.diagonal().sqrt()
        scales: Tensor = 1 / torch.where(deviation > 0, deviation, 1.0)
        return torch.diag(scales)
    values, vectors = torch.linalg.eigh(covariance)  # ascending
    if name == "remove_top" and len(numbers) == 1 and 0 < numbers[0] < width and numbers[0] == int(numbers[0]):
        top = vectors[:, -int(numbers[0]) :]
        rest: Tensor = eye - top @ top.mT
        return rest
    if name == "whiten" and len(numbers) <= 2:
        shrinkage = numbers[0] if numbers else SHRINKAGE
        keep = int(numbers[1]) if len(numbers) == 2 else width
        if 0 <= shrinkage <= 1 and 0 < keep <= width:
            shrunk = (1 - shrinkage) * values.clamp(min=0) + shrinkage * values.mean()
            scale = torch.where(shrunk > 0, shrunk, 1.0).rsqrt()
            whole: Tensor = (vectors * scale).mT  # a row a principal direction, the first ones last
            return whole.flip(0)[:keep] if keep < width else torch.matmul(vectors, whole)
    raise ValueError
