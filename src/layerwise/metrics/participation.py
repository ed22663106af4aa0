"""Participation ratio: exp(S_2), the number of dimensions that carry most of the prompts' variance."""

from torch import Tensor

from layerwise.metrics.base import Metric
from layerwise.metrics.intervals import spectral_spread, uneven_rows
from layerwise.metrics.readings import pooled_rows
from layerwise.metrics.scores import of_spectrum
from layerwise.ops.rows import RowTreatment
from layerwise.ops.spectrum import matrix_entropy, renyi_entropy


def participation(z: Tensor, *, rows: RowTreatment = "raw") -> Tensor:
    """exp of the entropy of order 2 of the rows: (sum l)^2 / sum l^2 over the eigenvalues.  (..., N, D) -> (...)"""
    return matrix_entropy(z, 2, rows=rows).exp()


def participation_of_spectrum(values: Tensor) -> Tensor:
    return renyi_entropy(values, 2).exp()


METRIC = Metric(
    name="participation",
    perspective="information",
    larger_means="variance shared by more dimensions",
    unit="dimensions",
    rows=("raw", "unit", "centered", "centered_unit"),
    reading=pooled_rows,
    score=of_spectrum(participation_of_spectrum),
    spread=spectral_spread(participation_of_spectrum, uneven_rows),
    cite="Gao et al. 2017",
)
