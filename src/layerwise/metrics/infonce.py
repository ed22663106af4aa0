"""InfoNCE: how hard it is to find a prompt's second view among those of all prompts."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from layerwise.core.errors import InputError
from layerwise.metrics.base import Metric
from layerwise.metrics.ops.rows import treat_rows
from layerwise.metrics.readings import view_pairs
from layerwise.metrics.scores import block_score

PAIRS_PER_BLOCK = 256


def paired_unit_rows(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both inputs as unit rows; raises if their shapes differ."""
    if a.dim() != 2 or a.shape != b.shape or len(a) == 0:
        raise InputError(f"expected two matrices of the same shape (N, D), got {tuple(a.shape)} and {tuple(b.shape)}")
    return treat_rows(a, "unit"), treat_rows(b, "unit")


def infonce(
    a: Tensor, b: Tensor, *, temperature: float = 0.1, direction: Literal["both", "a_to_b", "b_to_a"] = "both"
) -> Tensor:
    """InfoNCE loss between two views, in nats: 0 is perfect alignment.

    The cross-entropy of finding row i of b, given row i of a, by cosine similarity / temperature. log N where all
    rows are alike; log N minus the loss is a lower bound of the views' mutual information. It depends on N: compare
    only equal N.

    Args:
        a: the first view of each example, (N, D).
        b: the second view of the same examples, (N, D).
        temperature: divides the cosine similarities.
        direction: a_to_b, b_to_a, or both (their mean).

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> round(layerwise.functional.infonce(torch.ones(8, 3), torch.ones(8, 3)).item(), 4)
        2.0794
    """
    if not temperature > 0:
        raise InputError(f"temperature={temperature} must be greater than 0; the paper uses 0.1")
    a, b = paired_unit_rows(a, b)
    logits = a @ b.mT / temperature  # (N, N)
    target = torch.arange(len(a), device=a.device)
    losses = {"a_to_b": lambda: cross_entropy(logits, target), "b_to_a": lambda: cross_entropy(logits.mT, target)}
    if direction == "both":
        return (losses["a_to_b"]() + losses["b_to_a"]()) / 2
    if direction not in losses:
        raise InputError(f"direction={direction!r} is not one of both, a_to_b, b_to_a")
    return losses[direction]()


METRIC = Metric(
    name="infonce",
    perspective="invariance",
    larger_means="a prompt's views are aligned less well (it is a loss)",
    unit="nats",
    reading=view_pairs,
    score=block_score(infonce, PAIRS_PER_BLOCK),
    cite="van den Oord et al. 2018; Skean et al. 2025, sec. 3.4",
)
