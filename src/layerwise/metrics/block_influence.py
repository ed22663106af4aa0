"""Block influence: how far a block turns the vectors that pass through it.

It compares two layers, so it is a function and not in the catalog: a scan sees one layer at a time.
"""

import math
from collections.abc import Sequence

from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.metrics.ops.precision import to_float64
from layerwise.metrics.ops.rows import treat_rows


def block_influence(before: Tensor, after: Tensor) -> Tensor:
    """1 minus the mean cosine between the vectors that enter a block and those that leave it.

    0 where the block changes no direction, 1 where it turns vectors by a right angle on average. Use hidden states
    before the final norm (`raw`): of tokens, as in the paper, or one pooled vector per text.

    Args:
        before: vectors that enter the block, (N, D): layer k - 1.
        after: the same vectors when they leave it, (N, D): layer k.

    Returns:
        A scalar, computed in float64; a pair with a zero vector is left out, and nan where no pair remains.

    Raises:
        InputError: the shapes differ, or there are no vectors.
        NotFiniteError: a vector contains NaN or infinity.

    Example:
        >>> import torch
        >>> before, after = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> layerwise.functional.block_influence(before, after).item()
        0.5
    """
    if before.dim() != 2 or before.shape != after.shape or len(before) == 0:
        raise InputError(f"expected two matrices (N, D) of one shape, got {tuple(before.shape)}, {tuple(after.shape)}")
    before, after = treat_rows(to_float64(before), "unit"), treat_rows(to_float64(after), "unit")
    nonzero = (before != 0).any(dim=1) & (after != 0).any(dim=1)
    return 1 - (before * after).sum(dim=1)[nonzero].mean()


def block_influence_curve(layers: Sequence[Tensor]) -> tuple[float, ...]:
    """The influence of each block, from the vectors of all layers 0, 1, 2, ...; nan for layer 0.

    A rule can read it: `parse_rule("min:block_influence")({"block_influence": curve}, depth)`.
    """
    pairs = zip(layers, layers[1:], strict=False)
    return (math.nan, *(float(block_influence(before, after)) for before, after in pairs))
