"""Intrinsic dimension (TwoNN): the dimension of the manifold on which the prompts lie."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.metrics.accumulators.row_sample import RowSample
from layerwise.metrics.base import Estimate, Metric
from layerwise.metrics.intervals import JACKKNIFE_GROUPS, IntervalSource, Uncertainty, group_jackknife
from layerwise.metrics.ops.precision import require_finite, to_float64
from layerwise.metrics.ops.rows import RowTreatment
from layerwise.metrics.readings import row_sample

DISCARD_FRACTION = 0.1


def intrinsic_dimension(z: Tensor, *, discard: float = DISCARD_FRACTION) -> Tensor:
    """TwoNN estimate of the intrinsic dimension, from the ratio of each row's two nearest-neighbour distances.

    Args:
        z: the vectors, (N, D). Rows that have an exact copy are left out: their nearest neighbour is at distance 0.
        discard: share of the largest ratios that is left out, as Facco et al. advise.

    Returns:
        A scalar, computed in float64; nan where fewer than two ratios are left.

    Example:
        >>> import torch
        >>> plane = torch.rand(2000, 2, generator=torch.Generator().manual_seed(0))
        >>> 1.8 < layerwise.functional.intrinsic_dimension(torch.nn.functional.pad(plane, (0, 6))).item() < 2.2
        True
    """
    if z.dim() != 2 or len(z) == 0:
        raise InputError(f"expected a non-empty matrix (N, D), got shape {tuple(z.shape)}")
    if not 0 <= discard < 1:
        raise InputError(f"discard={discard} must be at least 0 and less than 1")
    return slope_of_ratios(neighbour_ratios(z), discard)


def neighbour_ratios(z: Tensor) -> Tensor:
    """Log ratio of second to first neighbour distance, for each row without a duplicate."""
    z = to_float64(z)
    require_finite(z.norm(dim=-1), "the rows")
    if len(z) < 3:
        return z.new_zeros(0)
    distance = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")  # exact for near neighbours
    nearest = distance.fill_diagonal_(torch.inf).topk(2, largest=False).values  # (N, 2)
    nearest = nearest[nearest[:, 0] > 0]
    return (nearest[:, 1] / nearest[:, 0]).log()


def slope_of_ratios(ratio: Tensor, discard: float = DISCARD_FRACTION) -> Tensor:
    """Slope through the origin of -log(1 - F) against the sorted log ratios, F = i / n their empirical distribution."""
    n = len(ratio)
    # the largest has F = 1, where log(1 - F) is undefined
    retained = ratio.sort().values[: min(int(n * (1 - discard)), n - 1)]
    if len(retained) < 2:
        return ratio.new_tensor(torch.nan)
    cumulative = torch.arange(1, len(retained) + 1, dtype=ratio.dtype, device=ratio.device) / n
    return -(retained @ torch.log1p(-cumulative)) / (retained @ retained)


@dataclass(frozen=True)
class SampledRatios:
    ratios: Tensor
    skipped: int  # rows with NaN, and duplicates


def sampled_ratios(sample: RowSample, rows: RowTreatment) -> SampledRatios:
    ratios = neighbour_ratios(sample.rows[:, 0])
    return SampledRatios(ratios, sample.skipped + len(sample.keys) - len(ratios))


def score(sampled: SampledRatios, rows: RowTreatment) -> Estimate:
    return Estimate(float(slope_of_ratios(sampled.ratios)), len(sampled.ratios), sampled.skipped)


def uncertainty(sampled: SampledRatios) -> Uncertainty:
    return Uncertainty(group_jackknife(sampled.ratios, slope_of_ratios))


METRIC = Metric(
    name="intrinsic_dimension",
    perspective="geometry",
    larger_means="prompts lie on a manifold of higher dimension",
    unit="dimensions",
    reading=lambda rows: replace(row_sample(rows), finish=sampled_ratios),
    score=score,
    interval_source=IntervalSource(row_sample, sampled_ratios, uncertainty, degrees_of_freedom=JACKKNIFE_GROUPS - 1),
    cite="Facco et al. 2017",
)
