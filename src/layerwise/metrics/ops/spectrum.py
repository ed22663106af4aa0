"""Spectra of matrices, and entropies of spectra."""

import math

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.metrics.ops.precision import at_least_float32, to_float64
from layerwise.metrics.ops.rows import RowTreatment, treat_rows, unchecked_rows

NotConverged: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]  # public, not exported


def smaller_gram(z: Tensor) -> Tensor:
    """ZZ' or Z'Z, whichever is smaller: both have the same non-zero eigenvalues.  (..., N, D) -> (..., n, n)"""
    n, d = z.shape[-2:]
    return z @ z.mT if n <= d else z.mT @ z


def eigenvalues(gram: Tensor, size: int | Tensor) -> Tensor:
    """Eigenvalues of a positive semidefinite matrix, ascending; negative ones are rounding error and become zero.

    `size` is max(N, D) of the matrix that made the Gram matrix. In float64, values below size * eps * largest are also
    set to zero: a square root would amplify this noise. In float32 that threshold would delete real eigenvalues when
    one row carries nearly all of the trace, as an attention sink does, so none is applied: see docs/metrics.md. A
    tensor of sizes sets the threshold per matrix of a batch, so that padding does not change it.
    """
    values = symmetric_eigenvalues(gram)
    if values.dtype != torch.float64:
        return values.clamp(min=0)
    largest = values[..., -1:].detach()
    threshold = torch.as_tensor(size, device=values.device)[..., None] * torch.finfo(values.dtype).eps * largest
    return torch.where(values > threshold, values, 0.0)


def symmetric_eigenvalues(gram: Tensor) -> Tensor:
    """torch's eigvalsh, with a more robust fallback if it does not converge, as happens for many equal rows in
    float32."""
    try:
        values: Tensor = torch.linalg.eigvalsh(gram)
    except NotConverged:
        gram64 = to_float64(gram)
        try:
            values = torch.linalg.eigvalsh(gram64)
        except NotConverged:
            values = shifted_singular_values(gram64)
        values = values.to(gram)
    return values


def shifted_singular_values(gram: Tensor) -> Tensor:
    """Eigenvalues via singular values. The matrix is shifted by its norm first, since singular values have no sign."""
    shift: Tensor = torch.linalg.matrix_norm(gram.detach(), keepdim=True)  # (..., 1, 1)
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    values: Tensor = torch.linalg.svdvals(gram + shift * eye).flip(-1) - shift.squeeze(-1)
    return values


def spectrum(z: Tensor, rows: RowTreatment = "raw", mask: Tensor | None = None) -> Tensor:
    """Eigenvalues of ZZ', the squared singular values of Z.

    Args:
        z: the vectors, (..., N, D).
        rows: what is done to the rows first: raw, unit (length 1), centered, or centered_unit.
        mask: which rows count, (..., N); all where it is None.

    Returns:
        Non-negative eigenvalues in ascending order, (..., min(N, D)).

    Example:
        >>> import torch
        >>> layerwise.functional.spectrum(torch.diag(torch.tensor([1.0, 2.0, 3.0]))).round().tolist()
        [1.0, 4.0, 9.0]
    """
    if z.dim() >= 2 and 0 in z.shape[-2:]:
        raise InputError(f"an empty matrix {tuple(z.shape)} has no spectrum; pass at least one row")
    gram = smaller_gram(unchecked_rows(z, rows, mask))
    if not bool(torch.isfinite(gram.diagonal(dim1=-2, dim2=-1)).all()):  # fewer numbers than in the rows
        treat_rows(z, rows, mask)  # raises, and says how many rows
    size = z.shape[-2] if mask is None else mask.sum(dim=-1)
    return eigenvalues(gram, torch.clamp(torch.as_tensor(size, device=z.device), min=z.shape[-1]))


def normalize_to_sum(values: Tensor) -> Tensor:
    """Non-negative values divided by their sum; NaN if all are zero."""
    return values / values.sum(dim=-1, keepdim=True)


def shannon_entropy(p: Tensor) -> Tensor:
    """-sum p log p in nats over the last axis, with 0 log 0 = 0 and a finite gradient there."""
    log = torch.where(p > 0, p, 1.0).log()
    return 0.0 - (p * log).sum(dim=-1)  # not -0 where one direction has it all


def renyi_entropy(values: Tensor, alpha: float = 1.0) -> Tensor:
    """Rényi entropy of order alpha of a spectrum, in nats; log n if all n values are equal.

    values (..., n), non-negative -> (...); NaN if all values are zero. alpha=1 is Shannon entropy,
    alpha=inf is -log of the largest share. Decreases as alpha grows.
    """
    if not alpha > 0:
        raise InputError(
            f"alpha={alpha} is not a valid entropy order; use a number above 0 (1 is Shannon entropy) or math.inf"
        )
    p = normalize_to_sum(values)
    if alpha == 1:
        return shannon_entropy(p)
    if math.isinf(alpha):
        return 0.0 - p.amax(dim=-1).log()
    powers = torch.where(p == 0, 0.0, torch.where(p == 0, 1.0, p) ** alpha)  # avoids an infinite gradient at 0
    return 0.0 - powers.sum(dim=-1).log() / (alpha - 1)


def collision_entropy(gram: Tensor) -> Tensor:
    """Entropy of order 2 without eigenvalues: -log(|K|_F^2 / tr(K)^2); NaN if K is zero.  (..., n, n) -> (...)"""
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return 0.0 - ((gram / trace[..., None, None]) ** 2).sum(dim=(-2, -1)).log()


def matrix_entropy(z: Tensor, alpha: float = 1.0, *, rows: RowTreatment = "raw", mask: Tensor | None = None) -> Tensor:
    """Matrix-based (Renyi) entropy S_alpha of the rows of z, in nats.

    0 where all rows lie on one line; at most log min(N, D).

    Args:
        z: the vectors, (..., N, D).
        alpha: order of the entropy. Orders below 1, which weigh small eigenvalues most, are computed in float64.
        rows: what is done to the rows first: raw, unit (length 1), centered, or centered_unit.
        mask: which rows count, (..., N); all where it is None.

    Returns:
        One number per matrix, shape (...), in float32 or, given float64, in float64; nan where every row is zero.

    Raises:
        NotFiniteError: z holds NaN or infinity.
        InputError: z is empty.

    Example:
        >>> import torch
        >>> round(layerwise.functional.matrix_entropy(torch.eye(4)).item(), 4)
        1.3863
    """
    if alpha == 2 and 0 not in z.shape:
        return collision_entropy(smaller_gram(treat_rows(z, rows, mask)))
    if alpha < 1:
        return renyi_entropy(float64_spectrum(z, rows, mask), alpha).to(at_least_float32(z))
    return renyi_entropy(spectrum(z, rows, mask), alpha)


def effective_rank(z: Tensor, *, rows: RowTreatment = "raw", mask: Tensor | None = None) -> Tensor:
    """Effective rank of Roy and Vetterli: exp of the Shannon entropy of the normalized singular values.

    Args:
        z: the vectors, (..., N, D).
        rows: what is done to the rows first: raw, unit (length 1), centered, or centered_unit.
        mask: which rows count, (..., N); all where it is None.

    Returns:
        One number per matrix, shape (...), between 1 and the rank; nan where every row is zero. Computed in float64,
        because square roots magnify the noise of small eigenvalues.

    Example:
        >>> import torch
        >>> round(layerwise.functional.effective_rank(torch.eye(4)).item(), 4)
        4.0
    """
    return effective_rank_of_spectrum(float64_spectrum(z, rows, mask)).to(at_least_float32(z))


def float64_spectrum(z: Tensor, rows: RowTreatment, mask: Tensor | None) -> Tensor:
    """The spectrum in float64, whatever the type of z."""
    z64 = to_float64(at_least_float32(z))
    return spectrum(z64, rows, None if mask is None else mask.to(z64.device))


def effective_rank_of_spectrum(values: Tensor) -> Tensor:
    """Effective rank from squared singular values.  (..., n) -> (...)"""
    roots = torch.where(values > 0, torch.where(values > 0, values, 1.0).sqrt(), 0.0)
    return shannon_entropy(normalize_to_sum(roots)).exp()
