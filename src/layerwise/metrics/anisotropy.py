"""Anisotropy: how similar the directions of all prompts are, and the share of the top direction."""

import math

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.metrics.accumulators.row_sample import RowSample
from layerwise.metrics.accumulators.running_mean import RunningMean
from layerwise.metrics.base import Estimate, Metric
from layerwise.metrics.intervals import IntervalSource, Uncertainty, spectral_interval, uneven_rows_warning
from layerwise.metrics.ops.precision import to_float64
from layerwise.metrics.ops.rows import RowTreatment, treat_rows, unit_rows
from layerwise.metrics.ops.spectrum import normalize_to_sum, spectrum
from layerwise.metrics.readings import mean_unit_row, pooled_rows, row_sample
from layerwise.metrics.scores import spectrum_score


def anisotropy(z: Tensor) -> Tensor:
    """Mean cosine similarity of all pairs of different rows.

    About 0 where directions balance out, 1 where all rows point the same way. Computed without the N x N matrix.

    Args:
        z: the vectors, (N, D). Zero rows have no direction and are left out.

    Returns:
        A scalar; nan where fewer than two rows are left.

    Example:
        >>> import torch
        >>> layerwise.functional.anisotropy(torch.eye(3)).item()
        0.0
    """
    if z.dim() != 2:
        raise InputError(f"expected a matrix (N, D), got shape {tuple(z.shape)}")
    unit = treat_rows(z, "unit")
    unit = unit[(unit != 0).any(dim=-1)]
    return mean_pairwise_cosine(unit.sum(dim=0), len(unit))


def mean_pairwise_cosine(total: Tensor, n: int) -> Tensor:
    """Uses the sum of n unit rows: |sum|^2 is n plus twice the sum of all pairwise cosines."""
    return (total @ total - n) / (n * (n - 1)) if n > 1 else total.new_tensor(torch.nan)


def top_share(z: Tensor, *, rows: RowTreatment = "raw") -> Tensor:
    """Share of the largest eigenvalue in the sum of all: 1 where the rows lie on one line.

    Args:
        z: the vectors, (..., N, D).
        rows: what is done to the rows first: raw, unit (length 1), centered, or centered_unit.

    Returns:
        One number per matrix, shape (...); nan where every row is zero.

    Example:
        >>> import torch
        >>> round(layerwise.functional.top_share(torch.eye(4)).item(), 4)
        0.25
    """
    return top_share_of_spectrum(spectrum(z, rows))


def top_share_of_spectrum(values: Tensor) -> Tensor:
    return normalize_to_sum(values).amax(dim=-1)


def mean_cosine_uncertainty(unit: Tensor) -> Uncertainty:
    """Standard error of the mean pairwise cosine: twice that of each row's mean cosine with the others."""
    n = len(unit)
    if n < 3:
        return Uncertainty(math.nan)
    mean_cosines = (unit @ unit.sum(dim=0) - 1) / (n - 1)
    return Uncertainty(float(2 * mean_cosines.std() / math.sqrt(n)))


def unit_sample(sample: RowSample, rows: RowTreatment) -> Tensor:
    unit = unit_rows(to_float64(sample.rows[:, 0]))
    return unit[(unit != 0).any(dim=-1)]


def score(accumulator: RunningMean, rows: RowTreatment) -> Estimate:
    n = int(accumulator.count[0])
    value = float(mean_pairwise_cosine(accumulator.mean * n, n)) if n else math.nan
    return Estimate(value, n, int(accumulator.skipped[0]))


METRIC = Metric(
    name="anisotropy",
    perspective="geometry",
    larger_means="prompts point in more similar directions",
    unit="mean cosine",
    reading=mean_unit_row,
    score=score,
    interval_source=IntervalSource(row_sample, unit_sample, mean_cosine_uncertainty),
    cite="Ethayarajh 2019",
)

TOP_SHARE = Metric(
    name="top_share",
    perspective="geometry",
    larger_means="one direction carries more of the total",
    unit="share",
    rows=("raw", "unit", "centered", "centered_unit"),
    reading=pooled_rows,
    score=spectrum_score(top_share_of_spectrum),
    interval_source=spectral_interval(top_share_of_spectrum, uneven_rows_warning),
    cite="Mu & Viswanath 2018",
)
