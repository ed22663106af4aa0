"""Intervals: how far a score would move if the data were drawn again, from the spread that was kept.

Prompt-level scores have theirs from the spread over prompts, block scores from the blocks, data-set scores from the
kept sample of rows. None depends on the sharding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from layerwise.accumulators.row_sample import RowSample
from layerwise.metrics.readings import Reading, row_sample
from layerwise.ops.precision import double
from layerwise.ops.rows import RowTreatment, treat_rows
from layerwise.ops.spectrum import small_gram

LEVEL = 0.95
JACKKNIFE_GROUPS = 20
TOO_NARROW = "interval may be too narrow"


class Uncertainty(NamedTuple):
    """A standard error, and how lopsided it is: a sixth of the skewness of the sum that it is the error of."""

    error: float
    lopsided: float = 0.0


@dataclass(frozen=True)
class Spread:
    """Where a data-set metric's interval comes from: a kept sample, and the standard error made of it.

    `finish` does the costly part once for all metrics that share it; `error` gives the uncertainty of the score of
    a data set as large as the sample; `degrees` of freedom are those of the sample where not given. `doubt` says in
    words where simulations found the interval too narrow for such a sample, and nothing elsewhere.
    """

    reading: Callable[[RowTreatment], Reading]
    finish: Callable[[Any, RowTreatment], Any]
    error: Callable[[Any], Uncertainty]
    degrees: int | None = None
    doubt: Callable[[Any], str] = lambda found: ""


def interval(value: float, error: float, degrees: int, lopsided: float = 0.0) -> tuple[float, float]:
    """The 95 % interval of Student's t around a value, corrected for skewness (Hall 1992); nan where undefined."""
    from scipy.special import stdtrit

    if degrees < 1 or not math.isfinite(error) or not math.isfinite(value):
        return math.nan, math.nan
    t = float(stdtrit(degrees, (1 + LEVEL) / 2))

    def skewed(q: float) -> float:
        """Where the lopsided statistic stands when its symmetric form stands at q."""
        return (math.cbrt(1 + 6 * lopsided * (q - lopsided)) - 1) / (2 * lopsided) if abs(lopsided) > 1e-6 else q

    return value - skewed(t) * error, value - skewed(-t) * error


@dataclass(frozen=True)
class Influences:
    """The eigenvalues of a sample of rows, and how much each row adds to each: (n, k), columns sum to them."""

    values: Tensor
    parts: Tensor


def influences(sample: RowSample, rows: RowTreatment) -> Influences:
    """d l_k / d w_i = (u_k . x_i)^2: what one more copy of row i would add to eigenvalue k."""
    z = treat_rows(double(sample.kept[:, 0]), rows)  # (n, D)
    if not len(z):
        return Influences(z.new_zeros(1), z.new_zeros(0, 1))
    values, vectors = torch.linalg.eigh(small_gram(z))
    values = values.clamp(min=0)
    if len(z) <= z.shape[1]:  # eigenvectors of ZZ': row i's part of eigenvalue k is l_k v_ik^2
        return Influences(values, vectors**2 * values)
    return Influences(values, (z @ vectors) ** 2)


def spectral_spread(
    function: Callable[[Tensor], Tensor], doubt: Callable[[Influences], str] = lambda found: ""
) -> Spread:
    """For a function (..., k) -> (...) of a spectrum: the jackknife over all rows, from one eigendecomposition.

    Without row i, eigenvalue k is its part smaller: the first order of the perturbation, put into the function as it
    is, so that long rows count with all they do. Their skewness makes the interval longer on the side of the long tail.
    """

    def error(found: Influences) -> Uncertainty:
        if len(found.parts) < 2:
            return Uncertainty(math.nan)
        cut = found.values[-1] * max(found.parts.shape) * torch.finfo(found.values.dtype).eps
        left = torch.where(found.values > cut, (found.values - found.parts).clamp(min=0), 0.0)  # (n, k)
        return jackknife(function(left))

    return Spread(row_sample, influences, error, doubt=doubt)


def jackknife(left_out: Tensor) -> Uncertainty:
    """From the scores without one row each (n,)."""
    moved, n = left_out.mean() - left_out, len(left_out)
    squares = float((moved**2).sum())
    lopsided = float((moved**3).sum()) / squares**1.5 / 6 if squares > 0 else 0.0
    return Uncertainty(math.sqrt(squares * (n - 1) / n), lopsided)


def uneven_rows(found: Influences) -> str:
    """Where the lengths are as uneven as if a third of the rows or fewer had any: the largest eigenvalues then jump."""
    lengths = found.parts.sum(dim=-1)  # (n,) squared
    effective = float(lengths.sum() ** 2 / (lengths**2).sum()) if float(lengths.sum()) > 0 else math.inf
    if effective >= len(lengths) / 3:
        return ""
    return f"{TOO_NARROW}: few rows carry most of the length (simulated coverage 85 to 95 %)"


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
