"""Linear CKA: how alike two layers arrange the same prompts, whatever their width, rotation or scale.

It compares two layers, so it is a function and no row of the catalog; the row sample of a run feeds it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.ops.precision import double
from layerwise.ops.rows import treat_rows


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
        raise InputError(f"expected (N, D) and (N, E), rows of the same N; got {tuple(a.shape)}, {tuple(b.shape)}")
    a, b = treat_rows(double(a), "centered"), treat_rows(double(b), "centered")
    if len(a) <= max(a.shape[1], b.shape[1]):  # the smaller side, as ever
        of_a, of_b = a @ a.mT, b @ b.mT
        together = (of_a * of_b).sum()
    else:
        together, of_a, of_b = (a.mT @ b).square().sum(), a.mT @ a, b.mT @ b
    return together / (of_a.square().sum() * of_b.square().sum()).sqrt()


def cka_matrix(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """Linear CKA of every layer of one model with every layer of another, on rows of the same N examples.

    L matrices (N, D) and M matrices (N, E) -> (L, M), float64; nan where one side has no spread. The Gram matrix
    of each layer is made once: its inner products with the others are all that CKA needs.
    """
    if len({len(rows) for rows in (*a, *b)}) != 1:
        raise InputError("layers can be compared on rows of the same examples only; their numbers of rows differ")
    of_b = torch.stack([unit_gram(rows) for rows in b])  # (M, N * N)
    return torch.stack([of_b @ unit_gram(rows) for rows in a])


def unit_gram(rows: Tensor) -> Tensor:
    """The centred Gram matrix of rows (N, D) as one vector (N * N) of length 1; nan where there is no spread."""
    centered = treat_rows(double(rows), "centered")
    gram = (centered @ centered.mT).flatten()
    return gram.div(gram.norm())
