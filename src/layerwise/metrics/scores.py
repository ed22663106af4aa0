"""Score functions: from accumulated values to an estimate."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.metrics.accumulators.row_sample import RowSample
from layerwise.metrics.accumulators.running_mean import RunningMean
from layerwise.metrics.base import Estimate
from layerwise.metrics.intervals import interval
from layerwise.metrics.ops.precision import to_float64
from layerwise.metrics.ops.rows import RowTreatment
from layerwise.metrics.readings import Spectrum

Score = Callable[[Any, RowTreatment], Estimate]


def mean_score(column: int = 0) -> Score:
    """A score for `Metric`: the mean over prompts of a number, with its 95 % interval.

    Args:
        column: which of the reading's numbers, counted from 0.

    Returns:
        What `Metric(score=...)` takes.

    Example:
        >>> callable(layerwise.mean_score())
        True
    """

    def score(accumulator: RunningMean, rows: RowTreatment) -> Estimate:
        n = int(accumulator.count[column])
        value = float(accumulator.mean[column]) if n else math.nan
        error = math.sqrt(float(accumulator.squared_deviations[column]) / (n - 1) / n) if n > 1 else math.nan
        return Estimate(value, n, int(accumulator.skipped[column]), *interval(value, error, n - 1))

    return score


def spectrum_score(function: Callable[[Tensor], Tensor]) -> Score:
    """A score for `Metric`: a function of the eigenvalues of all pooled vectors.

    Args:
        function: takes the eigenvalues in ascending order, returns a scalar tensor.

    Returns:
        What `Metric(score=...)` takes, together with `reading=pooled_rows`.

    Example:
        >>> condition = layerwise.Metric(
        ...     name="largest_share",
        ...     perspective="geometry",
        ...     larger_means="one direction dominates",
        ...     reading=layerwise.pooled_rows,
        ...     score=layerwise.spectrum_score(lambda values: values[-1] / values.sum()),
        ...     cite="this page",
        ... )
        >>> {score.metric for score in layerwise.scan(model, texts, metrics=[condition])}
        {'largest_share'}
    """

    def score(spectrum: Spectrum, rows: RowTreatment) -> Estimate:
        return Estimate(
            one_number(function(spectrum.values)) if spectrum.n else math.nan,
            spectrum.n,
            spectrum.skipped,
            note=spectrum.note,
        )

    return score


def one_number(value: Any) -> float:
    """The value as a float; raises if it is not one number."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise InputError(f"its function must return one number, a scalar tensor, not shape {tuple(value.shape)}")
    return float(value)


def block_score(function: Callable[[Tensor, Tensor], Tensor], block: int) -> Score:
    """The mean of a function over blocks of `block` pairs, ordered by hashed id.

    An incomplete last block is dropped unless it is the only one, since these metrics depend on the number of pairs.
    """

    def score(sample: RowSample, rows: RowTreatment) -> Estimate:
        pairs = to_float64(sample.rows)  # (k, 2, D)
        blocks = [block_rows for block_rows in torch.split(pairs, block) if len(block_rows) == block] or [pairs]
        n = sum(len(block_rows) for block_rows in blocks)
        if n < 2:
            return Estimate(math.nan, n, sample.skipped_before(n))
        values = torch.stack([function(block_rows[:, 0], block_rows[:, 1]) for block_rows in blocks])
        value = float(values.mean())
        error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return Estimate(value, n, sample.skipped_before(n), *interval(value, error, len(values) - 1))

    return score
