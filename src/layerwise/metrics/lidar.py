"""LiDAR: how many directions separate prompts, relative to the variation of their own views."""

import math

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.metrics.accumulators.class_scatter import ClassScatter
from layerwise.metrics.base import Estimate, Metric
from layerwise.metrics.intervals import JACKKNIFE_GROUPS, IntervalSource, Uncertainty, group_jackknife
from layerwise.metrics.ops.precision import require_finite, to_float64
from layerwise.metrics.ops.rows import RowTreatment, treat_rows
from layerwise.metrics.ops.spectrum import eigenvalues, renyi_entropy, smaller_gram
from layerwise.metrics.readings import view_sample, view_scatter

RIDGE = 1e-4


def lidar(views: Tensor, *, ridge: float = RIDGE) -> Tensor:
    """LiDAR: the effective number of directions that separate prompts, given how much their own views scatter.

    exp of the entropy of the normalized eigenvalues of S_w^(-1/2) S_b S_w^(-1/2), where S_b is the scatter between
    prompts divided by n, and S_w the scatter within prompts divided by (n q), plus `ridge` times the identity.

    Args:
        views: q perturbed views of each of n prompts, (n, q, D).
        ridge: added to the diagonal of the within-prompt scatter.

    Returns:
        A scalar, computed in float64; nan for fewer than two prompts, or where all prompts have the same mean.

    Example:
        >>> import torch
        >>> views = torch.randn(20, 4, 3, generator=torch.Generator().manual_seed(0))
        >>> 1 <= layerwise.functional.lidar(views).item() <= 3
        True
    """
    if views.dim() != 3 or 0 in views.shape:
        raise InputError(f"expected non-empty views (n, q, D), got shape {tuple(views.shape)}")
    views = to_float64(views)
    require_finite(views.norm(dim=-1), "the views")
    means = views.mean(dim=1)  # (n, D)
    within = (views - means[:, None]).flatten(0, 1)  # (n q, D)
    centered = treat_rows(means, "centered")
    whitened = whiten(centered.mT, within.mT @ within / len(within), ridge)  # (D, n)
    return renyi_entropy(eigenvalues(smaller_gram(whitened), max(whitened.shape))).exp()


def whiten(columns: Tensor, within: Tensor, ridge: float) -> Tensor:
    """Whitens columns by the within-class scatter: L^(-1) x for S_w + ridge I = L L'."""
    eye = torch.eye(len(within), dtype=within.dtype, device=within.device)
    lower: Tensor = torch.linalg.cholesky(within + ridge * eye)
    whitened: Tensor = torch.linalg.solve_triangular(lower, columns, upper=False)
    return whitened


def score(scatter: ClassScatter, rows: RowTreatment) -> Estimate:
    n, _, between = scatter.between.moments()
    if n < 2:
        return Estimate(math.nan, n, scatter.between.skipped)
    count, _, within = scatter.within.moments()
    half_whitened = whiten(between, within / count, RIDGE)  # L^(-1) S_b
    gram = whiten(half_whitened.mT, within / count, RIDGE)  # L^(-1) S_b L^(-T)
    values = eigenvalues((gram + gram.mT) / 2, max(n, scatter.width))
    note = "" if scatter.precision == "float64" else "float32 sums"
    return Estimate(float(renyi_entropy(values).exp()), n, scatter.between.skipped, note=note)


def uncertainty(views: Tensor) -> Uncertainty:
    return Uncertainty(group_jackknife(views, lidar))


METRIC = Metric(
    name="lidar",
    perspective="invariance",
    larger_means="prompts are easier to separate linearly",
    unit="directions",
    reading=view_scatter,
    score=score,
    interval_source=IntervalSource(
        view_sample, lambda sample, rows: sample.rows, uncertainty, degrees_of_freedom=JACKKNIFE_GROUPS - 1
    ),
    cite="Thilak et al. 2024; Skean et al. 2025, sec. 3.4",
)
