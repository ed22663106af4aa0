"""DiME: how much the joint spread of two views grows when their pairing is broken."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from layerwise.metrics.base import Metric
from layerwise.metrics.infonce import PAIRS_PER_BLOCK, paired_unit_rows
from layerwise.metrics.readings import view_pairs
from layerwise.metrics.scores import of_blocks
from layerwise.ops.precision import double
from layerwise.ops.spectrum import collision_entropy, eigenvalues, renyi_entropy


def joint_entropy(a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
    """S_alpha of the entrywise product of both views' N x N Gram matrices of unit rows, in nats, in float64.

    a, b (N, D) -> scalar.
    """
    a, b = paired_unit_rows(double(a), double(b))
    return kernel_entropy((a @ a.mT) * (b @ b.mT), alpha)


def kernel_entropy(kernel: Tensor, alpha: float) -> Tensor:
    """S_alpha of positive semidefinite N x N matrices.  (..., N, N) -> (...)"""
    if alpha == 2:
        return collision_entropy(kernel)
    return renyi_entropy(eigenvalues(kernel, kernel.shape[-1]), alpha)


def dime(
    a: Tensor, b: Tensor, *, alpha: float = 1.0, permutations: int | Sequence[Sequence[int]] = 10, seed: int = 0
) -> Tensor:
    """Joint entropy with the pairing broken minus joint entropy, in nats: high when pairs are uniquely aligned.

    a, b (N, D) -> scalar, float64 inside. `permutations` is how many seeded shuffles of b to average over, or
    the shuffles themselves. Near 0 for unrelated views, and for views that are all alike; may fall a little
    below 0 for few pairs. It depends on N: compare only equal N.
    """
    a, b = paired_unit_rows(double(a), double(b))
    of_a, of_b = a @ a.mT, b @ b.mT  # (N, N)
    if isinstance(permutations, int):
        rng = np.random.default_rng(seed)
        permutations = [rng.permutation(len(a)).tolist() for _ in range(permutations)]
    broken = 0 * of_a.sum()
    for order in permutations:
        place = torch.as_tensor(order, device=a.device)
        broken = broken + kernel_entropy(of_a * of_b[place][:, place], alpha)
    return broken / len(permutations) - kernel_entropy(of_a * of_b, alpha)


METRIC = Metric(
    name="dime",
    perspective="invariance",
    larger_means="a prompt's views more uniquely aligned",
    unit="nats",
    reading=view_pairs,
    score=of_blocks(dime, PAIRS_PER_BLOCK),
    cite="Skean et al. 2023; Skean et al. 2025, sec. 3.4",
)
