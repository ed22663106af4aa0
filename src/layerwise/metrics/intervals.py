"""Intervals: how much a score would vary if the data were sampled again.

Prompt-level scores use the variance over prompts, block scores the variance over blocks, data-set scores the stored row
sample. None depends on the sharding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.metrics.accumulators.row_sample import RowSample
from layerwise.metrics.ops.precision import to_float64
from layerwise.metrics.ops.rows import RowTreatment, treat_rows
from layerwise.metrics.ops.spectrum import smaller_gram
from layerwise.metrics.readings import Reading, row_sample

LEVEL = 0.95
NORMAL_QUANTILE = 1.959963984540054  # of (1 + LEVEL) / 2
JACKKNIFE_GROUPS = 20
TOO_NARROW = "interval may be too narrow"


class Uncertainty(NamedTuple):
    """A standard error, and one sixth of the skewness of the estimate."""

    error: float
    skewness_term: float = 0.0


@dataclass(frozen=True)
class IntervalSource:
    """How the interval of a data-set metric is computed: from a stored sample and its standard error.

    `finish` does the expensive part once for all metrics that share it. `uncertainty` returns the uncertainty for a
    data set of the sample's size. `degrees_of_freedom` default to those of the sample. `warning` returns a warning if
    simulations found the interval too narrow for such a sample, otherwise an empty string.
    """

    reading: Callable[[RowTreatment], Reading]
    finish: Callable[[Any, RowTreatment], Any]
    uncertainty: Callable[[Any], Uncertainty]
    degrees_of_freedom: int | None = None
    warning: Callable[[Any], str] = lambda found: ""


def interval(value: float, error: float, degrees_of_freedom: int, skewness_term: float = 0.0) -> tuple[float, float]:
    """The 95 % Student's t interval around a value, corrected for skewness (Hall 1992); NaN if undefined."""
    from scipy.special import stdtrit

    if degrees_of_freedom < 1 or not math.isfinite(error) or not math.isfinite(value):
        return math.nan, math.nan
    t = float(stdtrit(degrees_of_freedom, (1 + LEVEL) / 2))

    def skewed(q: float) -> float:
        """The skewed quantile for the symmetric quantile q."""
        return (
            (math.cbrt(1 + 6 * skewness_term * (q - skewness_term)) - 1) / (2 * skewness_term)
            if abs(skewness_term) > 1e-6
            else q
        )

    return value - skewed(t) * error, value - skewed(-t) * error


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927), from 0 to 1; NaN without examples.

    It stays within 0 and 1, and has a width where all or none succeed.
    """
    if n < 1:
        return math.nan, math.nan
    share, z2 = successes / n, NORMAL_QUANTILE**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = NORMAL_QUANTILE / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def paired_share_interval(gained: int, lost: int, n: int) -> tuple[float, float]:
    """The 95 % interval of the difference of two shares over the same n examples (Agresti and Min 2005).

    `gained` examples succeed only in the first, `lost` only in the second. Half an example is added to each of the four
    cells, so that the interval has a width where no example differs.
    """
    if n < 1:
        return math.nan, math.nan
    total, b, c = n + 2, gained + 0.5, lost + 0.5
    mean = (b - c) / total
    half = NORMAL_QUANTILE * math.sqrt(b + c - (b - c) ** 2 / total) / total
    return max(-1.0, mean - half), min(1.0, mean + half)


RESAMPLES = 1000


def group_bootstrap(values: NDArray[Any], groups: NDArray[np.int64], seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of a mean by bootstrap over groups of values, such as the words of a sentence."""
    sizes, sums = np.bincount(groups), np.bincount(groups, weights=values)
    sizes, sums = sizes[sizes > 0], sums[sizes > 0]
    random, means = np.random.default_rng(seed), []
    for _ in range(RESAMPLES):
        drawn = random.integers(0, len(sizes), len(sizes))
        means.append(sums[drawn].sum() / sizes[drawn].sum())
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True)
class Influences:
    """The eigenvalues (k,) of a row sample, and the contribution of each row (n, k); columns sum to the eigenvalues."""

    values: Tensor
    contributions: Tensor


def compute_influences(sample: RowSample, rows: RowTreatment) -> Influences:
    """d l_k / d w_i = (u_k . x_i)^2: what one more copy of row i would add to eigenvalue k."""
    z = treat_rows(to_float64(sample.rows[:, 0]), rows)  # (n, D)
    if not len(z):
        return Influences(z.new_zeros(1), z.new_zeros(0, 1))
    values, vectors = torch.linalg.eigh(smaller_gram(z))
    values = values.clamp(min=0)
    if len(z) <= z.shape[1]:  # eigenvectors of ZZ': row i contributes l_k v_ik^2 to eigenvalue k
        return Influences(values, vectors**2 * values)
    return Influences(values, (z @ vectors) ** 2)


def spectral_interval(
    function: Callable[[Tensor], Tensor], warning: Callable[[Influences], str] = lambda found: ""
) -> IntervalSource:
    """For a function (..., k) -> (...) of a spectrum: the jackknife over all rows, from one eigendecomposition.

    Leaving out row i lowers eigenvalue k by its contribution, to first order; the function itself is not linearised, so
    long rows have their full effect. Skewness extends the interval on the side of the long tail.
    """

    def uncertainty(influences: Influences) -> Uncertainty:
        if len(influences.contributions) < 2:
            return Uncertainty(math.nan)
        threshold = (
            influences.values[-1] * max(influences.contributions.shape) * torch.finfo(influences.values.dtype).eps
        )
        remaining = torch.where(
            influences.values > threshold, (influences.values - influences.contributions).clamp(min=0), 0.0
        )  # (n, k)
        return jackknife(function(remaining))

    return IntervalSource(row_sample, compute_influences, uncertainty, warning=warning)


def jackknife(leave_one_out: Tensor) -> Uncertainty:
    """From leave-one-out scores (n,)."""
    deviations, n = leave_one_out.mean() - leave_one_out, len(leave_one_out)
    squares = float((deviations**2).sum())
    skewness_term = float((deviations**3).sum()) / squares**1.5 / 6 if squares > 0 else 0.0
    return Uncertainty(math.sqrt(squares * (n - 1) / n), skewness_term)


def uneven_rows_warning(influences: Influences) -> str:
    """A warning if few rows hold most of the squared norm: the largest eigenvalues are then unstable."""
    squared_norms = influences.contributions.sum(dim=-1)  # (n,) squared
    effective_count = (
        float(squared_norms.sum() ** 2 / (squared_norms**2).sum()) if float(squared_norms.sum()) > 0 else math.inf
    )
    if effective_count >= len(squared_norms) / 3:
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
