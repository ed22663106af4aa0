"""Intervals: how far a score would move if the data were drawn again, from the spread that was kept.

Prompt-level scores have theirs from the spread over prompts, block scores from the blocks, data-set scores from the
kept sample of rows. None depends on the sharding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from layerwise.accumulators.row_sample import RowSample
from layerwise.metrics.readings import Reading, row_sample
from layerwise.ops.precision import double
from layerwise.ops.rows import RowTreatment, treat_rows
from layerwise.ops.spectrum import small_gram

LEVEL = 0.95
JACKKNIFE_GROUPS = 20


@dataclass(frozen=True)
class Spread:
    """Where a data-set metric's interval comes from: a kept sample, and the standard error made of it.

    `finish` does the costly part once for all metrics that share it; `error` gives the standard error of the
    score of a data set as large as the sample; `degrees` of freedom are those of the sample where not given.
    """

    reading: Callable[[RowTreatment], Reading]
    finish: Callable[[Any, RowTreatment], Any]
    error: Callable[[Any], float]
    degrees: int | None = None


def interval(value: float, error: float, degrees: int) -> tuple[float, float]:
    """The 95 % interval of Student's t around a value; nan where nothing can be said."""
    from scipy.special import stdtrit

    if degrees < 1 or not math.isfinite(error) or not math.isfinite(value):
        return math.nan, math.nan
    half = float(stdtrit(degrees, (1 + LEVEL) / 2)) * error
    return value - half, value + half


@dataclass(frozen=True)
class Influences:
    """The eigenvalues of a sample of rows, and how much each row adds to each: (n, k), columns sum to them."""

    values: Tensor
    parts: Tensor


def influences(sample: RowSample, rows: RowTreatment) -> Influences:
    """d l_k / d w_i = (u_k . x_i)^2: what one more copy of row i would add to eigenvalue k."""
    z = treat_rows(double(sample.kept[:, 0]), rows)                            # (n, D)
    if not len(z):
        return Influences(z.new_zeros(1), z.new_zeros(0, 1))
    values, vectors = torch.linalg.eigh(small_gram(z))
    values = values.clamp(min=0)
    if len(z) <= z.shape[1]:  # eigenvectors of ZZ': row i's part of eigenvalue k is l_k v_ik^2
        return Influences(values, vectors**2 * values)
    return Influences(values, (z @ vectors) ** 2)


def spectral_spread(function: Callable[[Tensor], Tensor]) -> Spread:
    """For a function of a spectrum: the infinitesimal jackknife, a delta method over all rows at once."""

    def error(found: Influences) -> float:
        if len(found.parts) < 2:
            return math.nan
        cut = found.values[-1] * max(found.parts.shape) * torch.finfo(found.values.dtype).eps
        values = torch.where(found.values > cut, found.values, 0.0).requires_grad_()
        (slope,) = torch.autograd.grad(function(values), values)
        moved = found.parts @ torch.where(found.values > cut, slope, 0.0)      # (n,)
        n = len(moved)
        return float(((moved - moved.mean()) ** 2).sum().sqrt() * math.sqrt(n / (n - 1)))

    return Spread(row_sample, influences, error)


def group_jackknife(items: Tensor, function: Callable[[Tensor], Tensor], groups: int = JACKKNIFE_GROUPS) -> float:
    """Standard error of a function of rows, by leaving out one group of them at a time.

    Rows come in the order of hashed ids, so groups of neighbours are random groups.
    """
    groups = min(groups, len(items))
    if groups < 2:
        return math.nan
    group = torch.arange(len(items)) * groups // len(items)
    values = torch.stack([function(items[group != g]) for g in range(groups)])
    return float(((values - values.mean()) ** 2).sum().mul((groups - 1) / groups).sqrt())
