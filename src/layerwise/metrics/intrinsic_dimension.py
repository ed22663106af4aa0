"""Intrinsic dimension (TwoNN): of how many dimensions the surface is on which the prompts lie."""

import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.metrics.base import Metric
from layerwise.metrics.readings import row_sample
from layerwise.metrics.scores import of_sample
from layerwise.ops.precision import double, require_finite


def intrinsic_dimension(z: Tensor, *, discard: float = 0.1) -> Tensor:
    """TwoNN estimate of the dimension, from how much farther each row's second neighbour is than its first.

    z (N, D) -> scalar, float64 inside. The largest `discard` share of the ratios is left out, as Facco et al.
    advise. Rows that have a copy are dropped (their first neighbour is at distance 0); nan where fewer than
    two ratios are left.
    """
    if z.dim() != 2 or len(z) == 0:
        raise InputError(f"expected a matrix (N, D) with rows, got shape {tuple(z.shape)}")
    if not 0 <= discard < 1:
        raise InputError(f"discard={discard} must be a share from 0 up to, not including, 1")
    z = double(z)
    require_finite(z.norm(dim=-1), "the rows")
    if len(z) < 3:
        return z.new_tensor(torch.nan)
    distance = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")  # exact for near neighbours
    nearest = distance.fill_diagonal_(torch.inf).topk(2, largest=False).values  # (N, 2)
    nearest = nearest[nearest[:, 0] > 0]
    ratio = (nearest[:, 1] / nearest[:, 0]).log().sort().values
    return slope_of_ratios(ratio, discard)


def slope_of_ratios(ratio: Tensor, discard: float) -> Tensor:
    """Slope through the origin of -log(1 - F) against the sorted log ratios, F = i / n their empirical distribution."""
    n = len(ratio)
    kept = ratio[: min(int(n * (1 - discard)), n - 1)]  # the largest has F = 1, whose logarithm is no number
    if len(kept) < 2:
        return ratio.new_tensor(torch.nan)
    share = torch.arange(1, len(kept) + 1, dtype=ratio.dtype, device=ratio.device) / n
    return -(kept @ torch.log1p(-share)) / (kept @ kept)


METRIC = Metric(
    name="intrinsic_dimension",
    perspective="geometry",
    larger_means="prompts lie on a surface of more dimensions",
    unit="dimensions",
    reading=row_sample,
    score=of_sample(intrinsic_dimension),
    cite="Facco et al. 2017",
)
