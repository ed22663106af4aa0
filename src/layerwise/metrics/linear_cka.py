"""Linear CKA: how alike two layers arrange the same prompts, whatever their width, rotation or scale.

It compares two layers, so it is a function and no row of the catalog; the row sample of a run feeds it.
"""

from torch import Tensor

from layerwise.errors import InputError
from layerwise.ops.precision import double
from layerwise.ops.rows import treat_rows


def linear_cka(a: Tensor, b: Tensor) -> Tensor:
    """Linear centred kernel alignment of two sets of rows of the same examples: 0 unrelated, 1 the same shape.

    a (N, D), b (N, E) -> scalar, float64 inside; nan where one side has no spread.
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
