"""The matrix entropy of spectra that fall by a power law, by its order alpha."""

from collections.abc import Sequence

import pandas as pd


def power_law_entropies(exponents: Sequence[float], orders: Sequence[float], size: int) -> pd.DataFrame:
    """One row per exponent and order: the entropy of eigenvalues 1, 2^-exponent, ..., size^-exponent."""
    import torch

    from layerwise.metrics.ops.spectrum import matrix_entropy

    rows = []
    for exponent in exponents:
        eigenvalues = torch.arange(1, size + 1, dtype=torch.float64) ** -float(exponent)
        vectors = torch.diag(eigenvalues.sqrt())
        rows += [(exponent, order, matrix_entropy(vectors, float(order)).item()) for order in orders]
    return pd.DataFrame(rows, columns=["exponent", "order", "entropy"])
