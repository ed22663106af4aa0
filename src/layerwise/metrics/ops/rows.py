"""Row treatments, applied before a metric is computed: none, unit length, centring."""

import torch
from torch import Tensor

from layerwise.core.checks import ROW_TREATMENTS, require_choice
from layerwise.core.checks import RowTreatment as RowTreatment
from layerwise.core.errors import InputError
from layerwise.metrics.ops.precision import at_least_float32, require_finite, zero_masked_rows

# A centred row this small relative to the original row is rounding error.
ROUNDING_TOLERANCE = 16


def unit_rows(z: Tensor) -> Tensor:
    """Each row divided by its length; a zero row stays zero."""
    norm = z.norm(dim=-1, keepdim=True)
    return z / torch.where(norm > 0, norm, 1.0)


def center_rows(z: Tensor, mask: Tensor) -> Tensor:
    """Rows minus the mean of the counted rows; exactly zero if only rounding error is left.

    z (..., N, D), mask (..., N). Rows that do not count become zero.
    """
    count = mask.sum(dim=-1).clamp(min=1)[..., None, None]  # (..., 1, 1)
    mean = z.sum(dim=-2, keepdim=True) / count  # (..., 1, D)
    centered = z - mean  # (..., N, D)
    noise = ROUNDING_TOLERANCE * torch.finfo(z.dtype).eps * z.detach().norm(dim=-1)
    is_noise = centered.detach().norm(dim=-1) <= noise  # False for NaN, which must stay
    return zero_masked_rows(centered, mask & ~is_noise)


def treat_rows(z: Tensor, rows: RowTreatment = "raw", mask: Tensor | None = None) -> Tensor:
    """The matrix that a metric sees, after a row treatment.

    Args:
        z: the vectors, (..., N, D).
        rows: raw (as they are), unit (each of length 1), centered (minus their mean), or centered_unit (both).
        mask: which rows count, (..., N); all where it is None.

    Returns:
        (..., N, D) in float32 or wider. Rows that do not count are zero, so that they add nothing to a Gram matrix.

    Example:
        >>> import torch
        >>> layerwise.functional.treat_rows(torch.tensor([[3.0, 4.0]]), "unit").tolist()
        [[0.6000..., 0.8000...]]
    """
    z = unchecked_rows(z, "raw", mask)
    require_finite(z.detach().norm(dim=-1), "the rows")
    return unchecked_rows(z, rows, mask)


def unchecked_rows(z: Tensor, rows: RowTreatment, mask: Tensor | None) -> Tensor:
    """The same without a look at every entry, for callers that look at the result: one NaN spreads to all of it."""
    require_choice("rows", rows, ROW_TREATMENTS)
    if z.dim() < 2:
        raise InputError(f"expected a matrix (..., N, D), got shape {tuple(z.shape)}; add an axis with z[None]")
    z = at_least_float32(z)
    counted = torch.ones(z.shape[:-1], dtype=torch.bool, device=z.device) if mask is None else mask.bool()
    z = zero_masked_rows(z, counted)
    if rows in ("centered", "centered_unit"):
        z = center_rows(z, counted)
    return unit_rows(z) if rows in ("unit", "centered_unit") else z
