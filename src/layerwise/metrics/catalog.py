"""The catalog: all built-in metrics, in display order."""

from layerwise.metrics import (
    anisotropy,
    curvature,
    dataset_entropy,
    dime,
    effective_rank,
    infonce,
    intrinsic_dimension,
    lidar,
    mean_norm,
    participation,
    prompt_entropy,
)
from layerwise.metrics.base import Metric

CATALOG: tuple[Metric, ...] = (
    prompt_entropy.METRIC,
    prompt_entropy.NORMALIZED,
    dataset_entropy.METRIC,
    effective_rank.METRIC,
    participation.METRIC,
    curvature.METRIC,
    intrinsic_dimension.METRIC,
    anisotropy.METRIC,
    anisotropy.TOP_SHARE,
    mean_norm.METRIC,
    infonce.METRIC,
    dime.METRIC,
    lidar.METRIC,
)
# Not a mean over prompts, so the value depends on how many there are; anisotropy is a mean over pairs of them.
DEPENDS_ON_COUNT = frozenset(m.name for m in CATALOG if not m.reading(m.rows[0]).columns) - {anisotropy.METRIC.name}
