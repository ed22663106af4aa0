"""DiME: how much the joint entropy of two views grows when their pairing is shuffled."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from layerwise.metrics.base import Metric
from layerwise.metrics.infonce import PAIRS_PER_BLOCK, paired_unit_rows
from layerwise.metrics.ops.precision import to_float64
from layerwise.metrics.ops.spectrum import collision_entropy, eigenvalues, renyi_entropy
from layerwise.metrics.readings import view_pairs
from layerwise.metrics.scores import block_score


def joint_entropy(a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
    """Matrix-based entropy of two views together, in nats.

    S_alpha of the entrywise product of both views' N x N Gram matrices of unit rows.

    Args:
        a: the first view of each example, (N, D).
        b: the second view of the same examples, (N, D).
        alpha: order of the entropy.

    Returns:
        A scalar, computed in float64.

    Example:
        >>> import torch
        >>> round(layerwise.functional.joint_entropy(torch.eye(4), torch.eye(4)).item(), 4)
        1.3863
    """
    a, b = paired_unit_rows(to_float64(a), to_float64(b))
    return kernel_entropy((a @ a.mT) * (b @ b.mT), alpha)


def kernel_entropy(kernel: Tensor, alpha: float) -> Tensor:
    """S_alpha of positive semidefinite N x N matrices.  (..., N, N) -> (...)"""
    if alpha == 2:
        return collision_entropy(kernel)
    return renyi_entropy(eigenvalues(kernel, kernel.shape[-1]), alpha)


def dime(
    a: Tensor, b: Tensor, *, alpha: float = 1.0, permutations: int | Sequence[Sequence[int]] = 10, seed: int = 0
) -> Tensor:
    """How much joint entropy grows when the pairing of two views is broken, in nats.

    High where each row of `a` matches its own row of `b` and no other. Near 0 for unrelated views, and for views that
    are all alike; slightly below 0 is possible for few pairs. It depends on N: compare only equal N.

    Args:
        a: the first view of each example, (N, D).
        b: the second view of the same examples, (N, D).
        alpha: order of the entropy.
        permutations: how many seeded shuffles of `b` to average over, or the shuffles themselves.
        seed: seed of the shuffles.

    Returns:
        A scalar, computed in float64.

    Example:
        >>> import torch
        >>> a = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
        >>> layerwise.functional.dime(a, a).item() > layerwise.functional.dime(a, a.flip(0)).item()
        True
    """
    a, b = paired_unit_rows(to_float64(a), to_float64(b))
    gram_a, gram_b = a @ a.mT, b @ b.mT  # (N, N)
    if isinstance(permutations, int):
        rng = np.random.default_rng(seed)
        permutations = [rng.permutation(len(a)).tolist() for _ in range(permutations)]
    shuffled_entropy = 0 * gram_a.sum()
    for permutation in permutations:
        index = torch.as_tensor(permutation, device=a.device)
        shuffled_entropy = shuffled_entropy + kernel_entropy(gram_a * gram_b[index][:, index], alpha)
    return shuffled_entropy / len(permutations) - kernel_entropy(gram_a * gram_b, alpha)


METRIC = Metric(
    name="dime",
    perspective="invariance",
    larger_means="a prompt's views are more uniquely aligned",
    unit="nats",
    reading=view_pairs,
    score=block_score(dime, PAIRS_PER_BLOCK),
    cite="Skean et al. 2023; Skean et al. 2025, sec. 3.4",
)
