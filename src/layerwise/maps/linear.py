"""Linear maps with a bias, fitted without labels: center, zscore, remove_top, whiten; and fewer dimensions.

A map is fitted from count, mean and scatter of the vectors alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerwise.core.checks import TRANSFORMS, require_transform
from layerwise.core.errors import InputError
from layerwise.metrics.accumulators.second_moment import moments_of_rows

SHRINKAGE = 0.1

Moments = tuple[int, Tensor, Tensor]  # count, mean (D), scatter (D, D)


@dataclass(frozen=True)
class LinearMap:
    """A linear map with a bias, x -> W x + b, in float64.

    Args:
        weight: W, (E, D).
        bias: b, (E,).
    """

    weight: Tensor
    bias: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """rows (N, D) -> (N, E), in the float type of the rows."""
        return (rows.double() @ self.weight.mT + self.bias).to(rows.dtype)


def fit_map(transform: str, count: int, mean: Tensor, scatter: Tensor) -> LinearMap:
    """The map that a word such as `remove_top:3` names, fitted on rows with this count, mean and scatter.

    center subtracts the mean; zscore also divides each dimension by its standard deviation; remove_top:K removes the
    mean and the first K principal directions; whiten makes the covariance the identity, after shrinking it towards its
    mean variance by SHRINKAGE, and keeps only the first DIMENSIONS if given.
    """
    name, *parameters = require_transform(transform).split(":")
    if name == "none":
        return identity_map(len(mean))
    if count < 2:
        raise InputError(f"{transform} needs at least 2 texts to fit, got {count}")
    covariance = scatter / count
    try:
        weight = fit_weight(name, [float(n) for n in parameters], covariance)
    except ValueError:
        raise InputError(f"transform {transform!r} is not one of {', '.join(TRANSFORMS)}") from None
    return LinearMap(weight, -(weight @ mean))


def identity_map(width: int) -> LinearMap:
    return LinearMap(torch.eye(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64))


def fit_maps(parts: Sequence[tuple[str, Moments]]) -> tuple[LinearMap, ...]:
    """The maps of vectors that are concatenated: one per part, scaled so that all parts count alike.

    A single part is not scaled. Several parts get the same mean length, together that of one whitened vector.
    """
    if len(parts) == 1:
        ((transform, moments),) = parts
        return (fit_map(transform, *moments),)
    maps = []
    for transform, (count, mean, scatter) in parts:
        if transform == "none":
            raise InputError("concatenated vectors need a map that removes their mean: use at least center")
        fitted = fit_map(transform, count, mean, scatter)
        mean_squared_norm = float((fitted.weight @ (scatter / count) * fitted.weight).sum())  # mean squared norm
        scale = math.sqrt(len(mean) / len(parts) / mean_squared_norm) if mean_squared_norm > 0 else 1.0
        maps.append(LinearMap(scale * fitted.weight, scale * fitted.bias))
    return tuple(maps)


def fit_parts(parts: Sequence[tuple[str, Tensor]], dims: int | None = None) -> tuple[LinearMap, ...]:
    """The maps of a recipe's parts: the name of each map, and the rows (N, D) that it is fitted on."""
    maps = fit_maps([(name, moments_of_rows(rows)) for name, rows in parts])
    if dims is None:
        return maps
    return reduce_dims(maps, moments_of_rows(torch.cat([rows for _, rows in parts], dim=1)), dims)


def reduce_dims(maps: Sequence[LinearMap], moments: Moments, dims: int) -> tuple[LinearMap, ...]:
    """The maps followed by a projection on the first principal directions of their concatenated result.

    `moments` are those of the concatenated vectors before the maps. The results of these maps are added, not
    concatenated: together they are the projection.
    """
    count, _, scatter = moments
    combined = concatenate_maps(maps)
    width = len(combined.bias)
    if dims > width:
        raise InputError(f"cannot keep {dims} dimensions of vectors that have {width}; use {width} or fewer")
    require_texts_for(dims, count)
    _, vectors = torch.linalg.eigh(combined.weight @ (scatter / count) @ combined.weight.mT)  # ascending
    directions = vectors.flip(1)[:, :dims].mT  # (dims, E)
    blocks = torch.split(directions, [len(part.bias) for part in maps], dim=1)
    return tuple(LinearMap(b @ part.weight, b @ part.bias) for b, part in zip(blocks, maps, strict=True))


def require_texts_for(dims: int, count: int) -> None:
    """Raises if the texts are too few to have that many principal directions."""
    if count <= dims:
        raise InputError(f"{dims} dimensions need more than {dims} texts to fit, got {count}; use fewer, or more texts")


def combine_maps(maps: Sequence[LinearMap], dims: int | None = None) -> LinearMap:
    """The maps of a recipe's parts as one map of their concatenated vectors; `dims` if `reduce_dims` made them."""
    if dims is None or len(maps) == 1:
        return concatenate_maps(maps)
    return LinearMap(
        torch.cat([part.weight for part in maps], dim=1), torch.stack([part.bias for part in maps]).sum(dim=0)
    )


def concatenate_maps(maps: Sequence[LinearMap]) -> LinearMap:
    """The maps of several parts as one map of their concatenated vectors, with concatenated results."""
    if len(maps) == 1:
        return maps[0]
    weight: Tensor = torch.block_diag(*(part.weight for part in maps))  # type: ignore[no-untyped-call]
    return LinearMap(weight, torch.cat([part.bias for part in maps]))


def fit_weight(name: str, numbers: list[float], covariance: Tensor) -> Tensor:
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
            whole: Tensor = (vectors * scale).mT  # one row per principal direction, the first ones last
            return whole.flip(0)[:keep] if keep < width else torch.matmul(vectors, whole)
    raise ValueError
