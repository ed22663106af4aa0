"""Score functions: from accumulated values to an estimate."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from layerwise.accumulators.row_sample import RowSample
from layerwise.accumulators.running_mean import RunningMean
from layerwise.metrics.base import Estimate
from layerwise.metrics.intervals import interval
from layerwise.metrics.readings import Spectrum
from layerwise.ops.precision import double
from layerwise.ops.rows import RowTreatment

Score = Callable[[Any, RowTreatment], Estimate]


def mean_of(column: int = 0) -> Score:
    """A score for `Metric`: the mean over prompts of a number, with its 95 % interval.

    Args:
        column: which of the reading's numbers, counted from 0.

    Returns:
        What `Metric(score=...)` takes.

    Example:
        >>> callable(layerwise.mean_of())
        True
    """

    def score(kept: RunningMean, rows: RowTreatment) -> Estimate:
        n = int(kept.count[column])
        value = float(kept.mean[column]) if n else math.nan
        error = math.sqrt(float(kept.deviations[column]) / (n - 1) / n) if n > 1 else math.nan
        return Estimate(value, n, int(kept.skipped[column]), *interval(value, error, n - 1))

    return score


def of_spectrum(function: Callable[[Tensor], Tensor]) -> Score:
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
        ...     score=layerwise.of_spectrum(lambda values: values[-1] / values.sum()),
        ...     cite="this page",
        ... )
        >>> {score.metric for score in layerwise.scan(model, texts, metrics=[condition])}
        {'largest_share'}
    """

    def score(kept: Spectrum, rows: RowTreatment) -> Estimate:
        return Estimate(float(function(kept.values)) if kept.n else math.nan, kept.n, kept.skipped, note=kept.note)

    return score


def of_blocks(function: Callable[[Tensor, Tensor], Tensor], block: int) -> Score:
    """The mean of a function over blocks of `block` pairs, ordered by hashed id.

    An incomplete last block is dropped unless it is the only one, since these metrics depend on the number of pairs.
    """

    def score(kept: RowSample, rows: RowTreatment) -> Estimate:
        pairs = double(kept.kept)  # (k, 2, D)
        blocks = [part for part in torch.split(pairs, block) if len(part) == block] or [pairs]
        n = sum(len(part) for part in blocks)
        if n < 2:
            return Estimate(math.nan, n, kept.skipped_among(n))
        values = torch.stack([function(part[:, 0], part[:, 1]) for part in blocks])
        value = float(values.mean())
        error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return Estimate(value, n, kept.skipped_among(n), *interval(value, error, len(values) - 1))

    return score
