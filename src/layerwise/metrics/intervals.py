"""Intervals: how much a score would vary if the data were sampled again.

Prompt-level scores use the variance over prompts, block scores the variance over blocks, data-set scores the stored row
sample. None depends on the sharding.
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
    """A standard error, and one sixth of the skewness of the estimate."""

    error: float
    lopsided: float = 0.0


@dataclass(frozen=True)
class Spread:
    """How the interval of a data-set metric is computed: from a stored sample and its standard error.

    `finish` does the expensive part once for all metrics that share it. `error` returns the uncertainty for a data set
    of the sample's size. `degrees` of freedom default to those of the sample. `doubt` returns a warning if simulations
    found the interval too narrow for such a sample, otherwise an empty string.
    """

    reading: Callable[[RowTreatment], Reading]
    finish: Callable[[Any, RowTreatment], Any]
    error: Callable[[Any], Uncertainty]
    degrees: int | None = None
    doubt: Callable[[Any], str] = lambda found: ""


def interval(value: float, error: float, degrees: int, lopsided: float = 0.0) -> tuple[float, float]:
    """The 95 % Student's t interval around a value, corrected for skewness (Hall 1992); NaN if undefined."""
    from scipy.special import stdtrit

    if degrees < 1 or not math.isfinite(error) or not math.isfinite(value):
        return math.nan, math.nan
    t = float(stdtrit(degrees, (1 + LEVEL) / 2))

    def skewed(q: float) -> float:
        """The skewed quantile for the symmetric quantile q."""
        return (math.cbrt(1 + 6 * lopsided * (q - lopsided)) - 1) / (2 * lopsided) if abs(lopsided) > 1e-6 else q

    return value - skewed(t) * error, value - skewed(-t) * error


@dataclass(frozen=True)
class Influences:
    """The eigenvalues (k,) of a row sample, and the contribution of each row (n, k); columns sum to the eigenvalues."""

    values: Tensor
    parts: Tensor


def influences(sample: RowSample, rows: RowTreatment) -> Influences:
    """d l_k / d w_i = (u_k . x_i)^2: what one more copy of row i would add to eigenvalue k."""
    z = treat_rows(double(sample.kept[:, 0]), rows)  # (n, D)
    if not len(z):
        return Influences(z.new_zeros(1), z.new_zeros(0, 1))
    values, vectors = torch.linalg.eigh(small_gram(z))
    values = values.clamp(min=0)
    if len(z) <= z.shape[1]:  # eigenvectors of ZZ': row i contributes l_k v_ik^2 to eigenvalue k
        return Influences(values, vectors**2 * values)
    return Influences(values, (z @ vectors) ** 2)


def spectral_spread(
    function: Callable[[Tensor], Tensor], doubt: Callable[[Influences], str] = lambda found: ""
) -> Spread:
    """For a function (..., k) -> (...) of a spectrum: the jackknife over all rows, from one eigendecomposition.

    Leaving out row i lowers eigenvalue k by its contribution, to first order; the function itself is not linearised, so
    long rows have their full effect. Skewness extends the interval on the side of the long tail.
    """

    def error(found: Influences) -> Uncertainty:
        if len(found.parts) < 2:
            return Uncertainty(math.nan)
        cut = found.values[-1] * max(found.parts.shape) * torch.finfo(found.values.dtype).eps
        left = torch.where(found.values > cut, (found.values - found.parts).clamp(min=0), 0.0)  # (n, k)
        return jackknife(function(left))

    return Spread(row_sample, influences, error, doubt=doubt)


def jackknife(left_out: Tensor) -> Uncertainty:
    """From leave-one-out scores (n,)."""
    moved, n = left_out.mean() - left_out, len(left_out)
    squares = float((moved**2).sum())
    lopsided = float((moved**3).sum()) / squares**1.5 / 6 if squares > 0 else 0.0
    return Uncertainty(math.sqrt(squares * (n - 1) / n), lopsided)


def uneven_rows(found: Influences) -> str:
    """A warning if few rows hold most of the squared norm: the largest eigenvalues are then unstable."""
    lengths = found.parts.sum(dim=-1)  # (n,) squared
    effective = float(lengths.sum() ** 2 / (lengths**2).sum()) if float(lengths.sum()) > 0 else math.inf
    if effective >= len(lengths) / 3:
        return ""
    return f"{TOO_NARROW}: a few rows have most of the squared norm (simulated coverage 85 to 95 %)"


def group_jackknife(items: Tensor, function: Callable[[Tensor], Tensor], groups: int = JACKKNIFE_GROUPS) -> float:
    """Standard error of a function of rows, leaving out one group at a time.

    Rows are sorted by hashed id, so consecutive groups are random.
    """
    groups = min(groups, len(items))
    if groups < 2:
        return math.nan
    group = torch.arange(len(items)) * groups // len(items)
    values = torch.stack([function(items[group != g]) for g in range(groups)])
    return float(((values - values.mean()) ** 2).sum().mul((groups - 1) / groups).sqrt())
