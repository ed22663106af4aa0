"""Linear CKA: how similarly two layers arrange the same prompts, independent of width, rotation and scale.

It compares two layers, so it is a function and not in the catalog; its input is the row sample of a run.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.metrics.ops.precision import to_float64
from layerwise.metrics.ops.rows import treat_rows


def linear_cka(a: Tensor, b: Tensor) -> Tensor:
    """Linear centered kernel alignment (CKA) of two representations of the same examples.

    0 where they are unrelated, 1 where one is a rotation and scaling of the other.

    Args:
        a: one representation, (N, D).
        b: another of the same N examples, (N, E).

    Returns:
        A scalar, computed in float64; nan where one side has no spread.

    Example:
        >>> import torch
        >>> a = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
        >>> round(layerwise.functional.linear_cka(a, 2 * a).item(), 4)
        1.0
    """
    if a.dim() != 2 or b.dim() != 2 or len(a) != len(b) or len(a) == 0:
        raise InputError(f"expected matrices (N, D) and (N, E) with the same N, got {tuple(a.shape)}, {tuple(b.shape)}")
    a, b = treat_rows(to_float64(a), "centered"), treat_rows(to_float64(b), "centered")
    if len(a) <= max(a.shape[1], b.shape[1]):  # use the smaller Gram matrix
        gram_a, gram_b = a @ a.mT, b @ b.mT
        inner_product = (gram_a * gram_b).sum()
    else:
        inner_product, gram_a, gram_b = (a.mT @ b).square().sum(), a.mT @ a, b.mT @ b
    return inner_product / (gram_a.square().sum() * gram_b.square().sum()).sqrt()


def cka_matrix(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """Linear CKA between all layers of two models, on the same N examples.

    L matrices (N, D) and M matrices (N, E) -> (L, M), float64; NaN if one side has no variance. Each layer's Gram
    matrix is computed once; CKA needs only the inner products of these.
    """
    if len({len(rows) for rows in (*a, *b)}) != 1:
        raise InputError("layers can only be compared on the same examples, but their numbers of rows differ")
    grams_b = torch.stack([unit_gram(rows) for rows in b])  # (M, N * N)
    return torch.stack([grams_b @ unit_gram(rows) for rows in a])


def unit_gram(rows: Tensor) -> Tensor:
    """The centred Gram matrix of rows (N, D), flattened to a unit vector (N * N); NaN if there is no variance."""
    centered = treat_rows(to_float64(rows), "centered")
    gram = (centered @ centered.mT).flatten()
    return gram.div(gram.norm())
