"""Participation ratio: exp(S_2), the number of dimensions that carry most of the prompts' variance."""

from torch import Tensor

from layerwise.metrics.base import Metric
from layerwise.metrics.intervals import spectral_interval, uneven_rows_warning
from layerwise.metrics.ops.rows import RowTreatment
from layerwise.metrics.ops.spectrum import matrix_entropy, renyi_entropy
from layerwise.metrics.readings import pooled_rows
from layerwise.metrics.scores import spectrum_score


def participation(z: Tensor, *, rows: RowTreatment = "raw") -> Tensor:
    """Participation ratio: (sum l)^2 / sum l^2 over the eigenvalues l of the rows' Gram matrix.

    Equal to exp of the matrix-based entropy of order 2.

    Args:
        z: the vectors, (..., N, D).
        rows: what is done to the rows first: raw, unit (length 1), centered, or centered_unit.

    Returns:
        One number per matrix, shape (...), between 1 and the rank; nan where every row is zero.

    Example:
        >>> import torch
        >>> round(layerwise.functional.participation(torch.eye(4)).item(), 4)
        4.0
    """
    return matrix_entropy(z, 2, rows=rows).exp()


def participation_of_spectrum(values: Tensor) -> Tensor:
    return renyi_entropy(values, 2).exp()


METRIC = Metric(
    name="participation",
    perspective="information",
    larger_means="variance spread over more dimensions",
    unit="dimensions",
    rows=("raw", "unit", "centered", "centered_unit"),
    reading=pooled_rows,
    score=spectrum_score(participation_of_spectrum),
    interval_source=spectral_interval(participation_of_spectrum, uneven_rows_warning),
    cite="Gao et al. 2017",
)
